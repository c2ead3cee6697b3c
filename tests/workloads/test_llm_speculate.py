"""Speculative decoding: two models with keys and values in pages against a plain loop, and the workload on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import pytest
import torch
from field_cases.case import sizes_of
from field_cases.shapes import LLAMA_1B, LLAMA_8B
from launching import run
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from milabench_ng.model.events import Digest, Done, Loss, Slice
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.speculator import Speculator
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.llm_speculate import Round, llm_speculate, rounds, work

TARGET = Dimensions(layers=2, width=64, heads=4, kv_heads=2, inner=96, vocabulary=512, tied=False)
DRAFT = Dimensions(layers=1, width=32, heads=4, kv_heads=1, inner=48, vocabulary=512)
SIZES: dict[str, Any] = {
    **sizes_of(TARGET),
    **{f"draft_{name}": value for name, value in sizes_of(DRAFT).items() if name != "vocabulary"},
}
SMALL = SIZES | {"concurrency": 3, "drafts": 2, "prompt": 24, "answer": 16}
PROMPT, ROUNDS = 9, 12


def speculator(draft: Dimensions, *, texts: int, drafts: int, length: int, page: int) -> Speculator:
    """With weights large enough that tokens differ, the same in both models of one size."""
    torch.manual_seed(0)
    made = Speculator(TARGET, draft, texts=texts, drafts=drafts, length=length, page=page).eval()
    made.reset_parameters()
    for model in (made.target.model, made.draft.model):
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.data *= 4
    if draft == TARGET:
        made.draft.model.load_state_dict(made.target.model.state_dict())
    return made


@torch.inference_mode()
def written(made: Speculator, planned: list[Round], prompts: Tensor) -> list[list[int]]:
    """What texts with these prompts say."""
    for number, (prompt, pages) in enumerate(zip(prompts, made.table, strict=True)):
        for generator in (made.target, made.draft):
            generator.read(prompt[:-1], pages, 0)
        made.last[number] = prompt[-2:]
    texts: list[list[int]] = [[] for _ in prompts]
    for one in planned:
        made.given.copy_(one.given)
        made.propose()
        for text, said, accepted in zip(texts, made.verify().tolist(), one.given[1].tolist(), strict=True):
            text += said[: accepted + 1]
    return texts


def following(model: Transformer, text: list[int]) -> list[int]:
    """The most probable token after each of a text, all of which is read anew."""
    return model.logits(model.states(torch.tensor([text])))[0].argmax(1).tolist()


@torch.inference_mode()
def written_plainly(made: Speculator, accepted: list[list[int]], prompts: Tensor) -> list[list[int]]:
    """The same by a plain loop, which keeps nothing."""
    texts: list[list[int]] = []
    for prompt, numbers in zip(prompts.tolist(), accepted, strict=True):
        text = list(prompt)
        for number in numbers:
            drafted = list(text)
            for _ in range(made.proposed.shape[1]):
                drafted.append(following(made.draft.model, drafted)[-1])
            text = drafted[: len(text) + number]
            text.append(following(made.target.model, text)[-1])
        texts.append(text[len(prompt) :])
    return texts


@pytest.mark.parametrize(("texts", "drafts", "page"), [(1, 4, 16), (3, 2, 4), (3, 1, 1)])
@pytest.mark.parametrize("draft", [DRAFT, TARGET], ids=["another", "itself"])
def test_texts_are_those_of_a_plain_loop(texts: int, drafts: int, page: int, draft: Dimensions) -> None:
    """With itself as the draft, a model says what it says alone, however many drafts are accepted."""
    answer = ROUNDS * (drafts + 1)
    made = speculator(draft, texts=texts, drafts=drafts, length=PROMPT + 2 * answer + drafts, page=page)
    prompts = torch.randint(TARGET.vocabulary, (texts, PROMPT), generator=torch.Generator().manual_seed(1))
    planned = from_the_prompt(texts, drafts)
    accepted = torch.stack([one.given[1] for one in planned], 1).tolist()
    found = written(made, planned, prompts)
    assert found == written_plainly(made, accepted, prompts)
    assert {*range(drafts + 1)} == {number for numbers in accepted for number in numbers}
    assert len({token for text in found for token in text}) > 5
    if draft == TARGET:
        alone = written_plainly(made, [[0] * len(text) for text in found], prompts)
        assert found == alone


def from_the_prompt(texts: int, drafts: int) -> list[Round]:
    """Rounds whose texts have said nothing yet."""
    drawn = torch.Generator().manual_seed(texts * drafts)
    at, made = torch.full((texts,), PROMPT - 1), []
    for _ in range(ROUNDS):
        accepted = torch.randint(drafts + 1, (texts,), generator=drawn)
        made.append(Round(torch.stack((at, accepted)), 0, 0))
        at = at + accepted + 1
    return made


def test_as_many_drafts_are_accepted_as_stated() -> None:
    """On average (1 - a^(k + 1)) / (1 - a) tokens a round (arXiv:2211.17192, equation 1): 2.77 for 0.7 and 4."""

    def planned(acceptance: float) -> Iterator[Round]:
        return rounds(8, drafts=4, acceptance=acceptance, prompt=5, answer=100, seed=3)

    made = list(islice(planned(0.7), 2000))
    assert sum(one.said for one in made) / len(made) / 8 == pytest.approx((1 - 0.7**5) / 0.3, rel=0.02)
    assert made[0].given[0].tolist() == [11, 23, 36, 48, 61, 73, 86, 98]
    for before, after in pairwise(made):
        (at, accepted), (then, _) = before.given, after.given
        assert torch.equal(then, torch.where(at + accepted + 1 < 105, at + accepted + 1, 5))
        assert before.said == int((accepted + 1).sum())
        assert before.seen == int((at + 1).sum())
    assert {next(planned(0.0)).said, next(planned(1.0)).said} == {8, 40}


def test_operations_and_bytes_of_a_round() -> None:
    """As they are noted, and as torch counts them, which sees all of each page, and nobody's."""
    texts, drafts, page = 3, 4, 8
    made = speculator(DRAFT, texts=texts, drafts=drafts, length=24, page=page)
    planned = Round(torch.tensor([[7, 9, 18], [0, 2, 4]]), said=9, seen=8 + 10 + 19)
    made.given.copy_(planned.given)
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        made.propose()
        made.verify()
    noted = work(TARGET, DRAFT, planned, drafts)
    pairs = {TARGET: sum(8 + 10 + 19 + texts * number for number in range(drafts + 1))}
    pairs[DRAFT] = pairs[TARGET] - texts * (drafts + 1)  # each token of a draft is one place before
    by_torch = (drafts + 1) * page * made.reach
    more = sum(4 * size.layers * size.width * (by_torch - seen) for size, seen in pairs.items())
    assert counter.get_total_flops() - more == pytest.approx(noted["gflop"] * 1e9)
    weights = [size.parameters() - size.width * (2 * size.layers + 1) for size in (TARGET, DRAFT)]
    kept = TARGET.layers * TARGET.kv_width * (12 + 14 + 23)
    kept += DRAFT.layers * DRAFT.kv_width * sum(8 + 10 + 19 + texts * number for number in range(drafts))
    read = 2 * (weights[0] - TARGET.head + drafts * weights[1]) + 4 * kept
    assert noted["gbytes"] * 1e9 == pytest.approx(read)


def test_a_round_of_the_shapes_of_8b_and_1b() -> None:
    """24.9 GB of weights, those of the 8B once and of the 1B four times, and 86.9 G operations for one text."""
    assert LLAMA_1B.parameters() == 1_235_814_400
    options = {option.name: option.default for option in llm_speculate.own_options}
    for size, prefix in ((LLAMA_8B, ""), (LLAMA_1B, "draft_")):
        for name in ("layers", "width", "heads", "kv_heads", "inner"):
            assert options[prefix + name] == getattr(size, name)
    noted = work(LLAMA_8B, LLAMA_1B, next(rounds(1, drafts=4, acceptance=0.7, prompt=1, answer=1, seed=1)), 4)
    assert noted["gbytes"] == pytest.approx(15.009 + 4 * 2.4715, abs=2e-3)
    assert noted["gflop"] == pytest.approx(2 * (5 * 7.5047 + 4 * 1.2358 + 0.9731), abs=0.02)
    measured = {"said": 2.5, "gflop": 1.0, "gbytes": 1.0, "draft_s": 1.0, "verify_s": 3.0, "peak_gb_per_s": 1000.0}
    units = {each.unit: each.of(100.0, options, measured) for each in llm_speculate.derived}
    assert units == {
        "tokens/s per user": 100.0,
        "tokens per round": 2.5,
        "% drafting": 25.0,
        "TFLOP/s": 0.04,
        "peak HBM %": 4.0,
    }


def test_on_the_cpu() -> None:
    """An item is a token that a text goes on with."""
    channel = run(llm_speculate, 30, **SMALL)
    rows, done = channel.all(Slice), channel.one(Done)
    assert done.ran == "bf16_master"
    assert not channel.all(Loss)
    assert done.count == sum(row.count for row in rows) == sum(row.notes["said"] for row in rows)
    assert all(3 * row.steps <= row.count <= 9 * row.steps for row in rows)
    for row in rows:
        assert {*row.notes} == {*llm_speculate.notes}
        assert 0 < row.notes["draft_s"] + row.notes["verify_s"] < row.length_s
    one = SMALL | {"concurrency": 1}
    assert sum(row.count for row in run(llm_speculate, 5, **one, acceptance=0.0).all(Slice)) == 5
    assert sum(row.count for row in run(llm_speculate, 5, **one, acceptance=1.0).all(Slice)) == 15


def test_equal_seeds_say_equal_tokens() -> None:
    digests = [
        run(llm_speculate, 100, **SMALL, acceptance=acceptance).one(Digest).sha256 for acceptance in (0.5, 0.5, 0.6)
    ]
    assert digests[0] == digests[1] != digests[2]

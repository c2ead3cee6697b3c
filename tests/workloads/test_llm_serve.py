"""Serving: keys and values in pages against a plain loop, and the workload on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from field_cases.shapes import LLAMA_8B
from launching import run
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Digest, Done, Loss, Slice
from milabench_ng.records.latency import batches
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.models import paged_generator
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.paged_generator import PagedGenerator, View, attend, paged_bytes
from milabench_ng.workloads.modern.llm_serve import Server, enough_pages, llm_serve, refuse_too_many, steps
from milabench_ng.workloads.modern.serving import Mix, Schedule, pages_for

SIZES: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "inner": 96, "vocabulary": 512}
SMALL = SIZES | {"concurrency": 4, "prompt": 24, "answer": 16, "chunk": 16, "page": 8}
TINY = Dimensions(**SIZES, tied=False)
MIX = Mix(20, 12, 7)
ANSWERED = 7
"""Requests whose answers are compared."""


def generator(*, texts: int, pages: int, page: int) -> PagedGenerator:
    """With weights large enough that tokens differ."""
    torch.manual_seed(0)
    model = PagedGenerator(TINY, texts=texts, pages=pages, page=page).eval()
    model.reset_parameters()
    for weight in model.model.parameters():
        if weight.dim() > 1:
            weight.data *= 4
    return model


@torch.inference_mode()
def answers(*, concurrency: int, pages: int, page: int, chunk: int) -> dict[int, list[int]]:
    """What the first requests are answered by continuous batching."""
    server = Server(generator(texts=concurrency, pages=pages, page=page), concurrency, pages_for(MIX.kept, page))
    schedule = Schedule(MIX, concurrency=concurrency, pages=pages, page=page, chunk=chunk)
    at: dict[int, int] = {}
    said: dict[int, list[int]] = {}
    ended: set[int] = set()
    for step in steps(schedule, MIX, TINY.vocabulary):
        tokens = server.step(step).tolist()
        reading = step.plan.reading
        if reading is not None and reading.last:
            at[reading.slot] = reading.request.number
        spoke = [*np.flatnonzero(step.plan.position >= 0), *([reading.slot] if reading and reading.last else [])]
        for slot in spoke:
            said.setdefault(at[slot], []).append(tokens[slot])
        ended |= {request.number for request in step.plan.ended}
        if ended >= {*range(ANSWERED)}:
            break
    return {number: said[number] for number in range(ANSWERED)}


@torch.inference_mode()
def one_by_one() -> dict[int, list[int]]:
    """The same by a plain loop, which reads each text anew for each of its tokens."""
    model, found = generator(texts=1, pages=1, page=1).model, {}
    for request in map(MIX.request, range(ANSWERED)):
        text = torch.from_numpy(MIX.tokens(request, TINY.vocabulary))[None]
        for _ in range(request.answer):
            text = torch.cat((text, model.logits(model.states(text)[:, -1]).argmax(1)[None]), 1)
        found[request.number] = text[0, request.prompt :].tolist()
    return found


@pytest.fixture(scope="module")
def expected() -> dict[int, list[int]]:
    return one_by_one()


@pytest.mark.parametrize(
    "how",
    [
        {"concurrency": 1, "pages": 31, "page": 1, "chunk": 100},
        {"concurrency": 3, "pages": 24, "page": 4, "chunk": 100},
        {"concurrency": 5, "pages": 18, "page": 8, "chunk": 7},
        {"concurrency": 8, "pages": 8, "page": 32, "chunk": 1},
    ],
)
def test_answers_do_not_depend_on_what_else_is_served(how: dict[str, int], expected: dict[int, list[int]]) -> None:
    """Whatever the concurrency, the pages and the parts of a prompt: all tokens are those of a plain loop."""
    assert answers(**how) == expected
    assert {number: len(said) for number, said in expected.items()} == {
        number: MIX.request(number).answer for number in range(ANSWERED)
    }
    assert len({token for said in expected.values() for token in said}) > 20


def test_attention_over_pages() -> None:
    """Two texts of 5 and 3 tokens in pages of 2, in any order, against attention to each text alone; one is idle."""
    torch.manual_seed(3)
    table = torch.tensor([[4, 1, 6], [3, 5, 0], [0, 0, 0]])
    filled = torch.tensor([[2, 2, 1], [2, 1, 0], [0, 0, 0]])
    query = torch.randn(3, 2, 2, 8)
    keys, values = torch.randn(2, 7, 2, 2, 8)
    owner = torch.tensor([2, 0, 0, 1, 0, 1, 0])
    kept = torch.tensor([0, 2, 0, 2, 2, 1, 1])
    found = attend(query, keys, values, View(table, filled > 0, owner, torch.arange(2) >= kept[:, None, None]))
    for text, length in ((0, 5), (1, 3)):
        own = [whole[table[text]].transpose(0, 1).flatten(1, 2)[:, :length] for whole in (keys, values)]
        assert torch.allclose(found[text], F.scaled_dot_product_attention(query[text], *own), atol=1e-6)
    assert found.isfinite().all()


def test_a_text_that_says_nothing_keeps_its_token_and_its_pages() -> None:
    model = generator(texts=2, pages=4, page=4)
    before = [kept.clone() for kept in (model.tokens, model.keys)]
    with torch.inference_mode():
        said = model(torch.tensor([[1, 2], [3, 0]]), torch.tensor([5, -1]), 5)
    assert said[1] == before[0][1]
    changed = (model.keys != before[1]).any(-1).any(0).any(1)
    assert changed.nonzero().tolist() == [[0, 0], [2, 1]]  # nobody's page, and the sixth place of the first text


@pytest.mark.parametrize("page", [1, 4, 32])
def test_several_tokens_of_a_text_in_one_step(page: int) -> None:
    """Five tokens of each of two texts, after nine and four others: states as of texts that are read anew."""
    read, length, longest = (9, 4), 5, -(-14 // page)
    model = generator(texts=2, pages=2 * longest, page=page)
    texts = torch.randint(TINY.vocabulary, (2, 14), generator=torch.Generator().manual_seed(2))
    table = torch.arange(1, 2 * longest + 1).view(longest, 2).T
    with torch.inference_mode():
        for text, own, count in zip(texts, table, read, strict=True):
            model.read(text[:count], own, 0)
        new = torch.stack([text[count:][:length] for text, count in zip(texts, read, strict=True)])
        states = model.states(new, table, torch.tensor(read), 2 * longest + 1)
        for text, found, count in zip(texts, states, read, strict=True):
            anew = model.model.states(text[None, : count + length])[0, count:]
            assert torch.allclose(found, anew, atol=1e-5)


def test_operations_and_bytes_of_a_step() -> None:
    """Of a step in which all pages are full, by the formulas and as torch counts them, with nobody's page."""
    page, texts = 8, 3
    model = generator(texts=texts, pages=2 * texts, page=page)
    table = torch.arange(1, 2 * texts + 1).view(texts, 2)
    position = torch.full((texts,), 2 * page - 1)
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(table, position, 2 * texts + 1)
    noted = {"said": texts, "fed": texts, "attended": texts * 2 * page, "seen": texts * 2 * page, "passes": 1}
    assert counter.get_total_flops() - 4 * 2 * 64 * page == pytest.approx(unit("TFLOP/s", texts, noted) * 1e12)
    weights = 2 * (TINY.parameters() - TINY.head - 64 * 5)  # no embedding, no norms
    kept = 2 * 2 * TINY.layers * TINY.kv_width * texts * 2 * page
    assert unit("peak HBM %", texts, noted, {"peak_gb_per_s": 1.0}) * 1e7 == weights + kept


def test_operations_of_a_part_of_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch counts attention to all keys, and takes no mask but a plain tensor meanwhile."""
    monkeypatch.setattr(
        paged_generator,
        "causal_lower_right",
        lambda rows, end: torch.ones(rows, end, dtype=torch.bool).tril(end - rows),
    )
    model = generator(texts=1, pages=4, page=8)
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.read(torch.zeros(10, dtype=torch.int64), torch.tensor([1, 2, 3]), 8)
    whole = unit("TFLOP/s", 1, {"said": 1, "fed": 10, "attended": 10 * 18}) * 1e12
    assert counter.get_total_flops() == pytest.approx(whole)


def unit(name: str, rate: float, noted: dict[str, float], peaks: dict[str, float] | None = None) -> float:
    """A derived unit of a test with the small sizes, at one step a second."""
    options = {option.name: option.default for option in builtin_workloads()["llm_serve"].own_options}
    (found,) = (each for each in llm_serve.derived if each.unit == name)
    return found.of(rate, options | SIZES, noted | (peaks or {}))


def test_bytes_of_the_shape_of_8b() -> None:
    """Weights of 16.06 GB, and 131,072 bytes of keys and values a token."""
    assert LLAMA_8B.parameters() == 8_030_261_248
    assert paged_bytes(LLAMA_8B, 64 * 16, 128) == 16_060_522_496 + (64 * 16 + 1) * 128 * 131_072


def test_what_does_not_fit_is_refused() -> None:
    refuse_too_many(16 * 10**9, 18 * 10**9)
    with pytest.raises(InputError, match=r"take 17\.0 GB .* has 18\.0 GB free\. Give a smaller --concurrency"):
        refuse_too_many(17 * 10**9, 18 * 10**9)
    enough_pages(prompt=5, answer=4, page=4, pages=0)
    enough_pages(prompt=5, answer=4, page=4, pages=2)
    with pytest.raises(InputError, match="--pages 1: a request of --prompt 5 and --answer 4 needs 2 pages"):
        enough_pages(prompt=5, answer=4, page=4, pages=1)


# The workload


def test_on_the_cpu() -> None:
    """Texts are under way from the first step; an item is a token, each of which is timed at most once."""
    channel = run(llm_serve, 60, **SMALL)
    rows, done = channel.all(Slice), channel.one(Done)
    assert done.ran == "bf16_master"
    assert not channel.all(Loss)
    assert rows[0].count == 4
    assert done.count == sum(row.count for row in rows) == sum(row.notes["said"] for row in rows)
    assert all(0 <= row.count <= 4 and batches(row.latency) == 1 for row in rows)
    for row in rows:
        assert {*row.item_latency} <= {*llm_serve.item_latencies}
        assert {*row.notes} == {*llm_serve.notes}
        assert sum(map(batches, row.item_latency.values())) <= row.count
        assert 0 <= row.notes["in_time"] <= row.notes["said"]
    timed = {name: sum(batches(row.item_latency.get(name, ())) for row in rows) for name in ("TTFT", "TPOT")}
    assert 10 < timed["TTFT"] < 20
    assert done.count - timed["TTFT"] - timed["TPOT"] == 4  # of each text under way, the first token after the clock


def test_limits_that_nobody_keeps() -> None:
    never, ever = (
        run(llm_serve, 40, **SMALL, first_limit_s=first_s, next_limit_s=next_s).all(Slice)
        for first_s, next_s in ((1e-9, 1e-9), (60.0, 60.0))
    )
    assert all(row.notes["in_time"] == 0 for row in never[2:])
    assert all(row.notes["in_time"] == row.count for row in ever)


def test_equal_seeds_say_equal_tokens() -> None:
    digests = [run(llm_serve, 100, **SMALL).one(Digest).sha256 for _ in range(2)]
    assert digests[0] == digests[1]
    assert run(llm_serve, 100, **SMALL | {"prompt": 25}).one(Digest).sha256 != digests[0]


def test_with_few_pages_requests_wait() -> None:
    """For room for one of them, one text speaks at a time, and all are answered in turn."""
    rows = run(llm_serve, 60, **SMALL, pages=5).all(Slice)
    assert max(row.count for row in rows) == 1
    assert sum(row.count for row in rows) > 30


def test_tokens_per_second_of_a_user_make_a_curve() -> None:
    (user,) = (each for each in llm_serve.derived if each.curve_over)
    assert (user.unit, user.curve_over) == ("tokens/s per user", "concurrency")
    assert user.of(640.0, {"concurrency": 64}) == 10.0
    (in_time,) = (each for each in llm_serve.derived if each.unit == "tokens/s in time")
    assert in_time.of(640.0, {}, {"said": 64.0, "in_time": 16.0}) == 160.0

"""Post-training by reinforcement: its arithmetic against plain PyTorch, and the workload on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from launching import run
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, GradientNorm, Loss, Ready, Slice
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.models import paged_generator
from milabench_ng.workloads.models.actors import Actors, group_advantages, log_probabilities, policy_loss
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.paged_generator import PagedGenerator, drawn
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.grpo import PHASES, Rollout, Rule, grpo, questions
from milabench_ng.workloads.modern.llm_serve import GRAPHS, Server
from milabench_ng.workloads.modern.serving import pages_for

SIZES: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "inner": 96, "vocabulary": 160}
SIZE = Dimensions(**SIZES)
PROMPTS, ANSWERS, PROMPT, ANSWER, PAGE = 2, 3, 11, 9, 4
TEXTS, LONGEST = PROMPTS * ANSWERS, pages_for(PROMPT + ANSWER - 1, PAGE)
SMALL = SIZES | {"prompts": PROMPTS, "answers": ANSWERS, "prompt": PROMPT, "answer": ANSWER, "page": PAGE}
ASKED = next(questions(7, PROMPTS, PROMPT, SIZE.vocabulary))


def rollout_of(generator: PagedGenerator) -> Rollout:
    return Rollout(Server(generator, TEXTS, LONGEST), PROMPTS, ANSWERS, PROMPT, ANSWER)


def actors() -> Actors:
    torch.manual_seed(0)
    made = Actors(SIZE, texts=TEXTS, pages=TEXTS * LONGEST, page=PAGE)
    made.reset_parameters()
    return made


def test_advantages_are_rewards_in_units_of_their_spread_in_the_group() -> None:
    rewards = torch.tensor([[1.0, 3.0, 5.0, 3.0], [7.0, 7.0, 7.0, 7.0]])
    found = group_advantages(rewards)
    assert found[0].tolist() == pytest.approx([-(2**0.5), 0.0, 2**0.5, 0.0], abs=2e-4)
    assert found[1].tolist() == [0.0] * 4


def test_the_loss_and_its_gradient() -> None:
    """The gradient of a token is its advantage, and what leads back to the reference; the loss is the distance."""
    now = torch.tensor([[-1.0, -2.0], [-3.0, -0.5]], requires_grad=True)
    reference = torch.tensor([[-1.0, -1.0], [-3.5, -0.5]])
    advantages = torch.tensor([1.5, -1.5])
    loss = policy_loss(now, reference, advantages, 0.1)
    distance = 0.1 * (torch.tensor([1.0, -0.5]).exp() - torch.tensor([2.0, 0.5])).sum()
    assert loss.item() == pytest.approx(distance.item() / 4, rel=1e-4)
    (gradient,) = torch.autograd.grad(loss, [now])
    towards = 0.1 * (1 - (reference - now.detach()).exp())
    assert torch.allclose(gradient, (towards - advantages[:, None]) / 4)


def test_log_probabilities_of_answers() -> None:
    model = Transformer(SIZE, chunk=7)
    model.reset_parameters()
    tokens = torch.randint(SIZE.vocabulary, (4, 12))
    with torch.no_grad():
        whole = model.logits(model.states(tokens[:, :-1])).log_softmax(-1)
    expected = whole.gather(2, tokens[:, 1:, None])[:, -5:, 0]
    assert torch.allclose(log_probabilities(model, tokens, 5), expected, atol=1e-5)


def test_draws_have_the_probabilities_of_the_logits() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, 2.0, -torch.inf]).expand(20_000, 4)
    found = drawn(logits).bincount(minlength=4) / 20_000
    assert torch.allclose(found, logits[0].softmax(0), atol=0.015)


def test_answers_over_pages_are_those_of_a_plain_loop() -> None:
    """If the most probable token is said: each text anew for each token; all answers to a prompt are then the same."""
    torch.manual_seed(0)
    generator = PagedGenerator(SIZE, texts=TEXTS, pages=TEXTS * LONGEST, page=PAGE)
    generator.reset_parameters()
    for weight in generator.model.parameters():
        if weight.dim() > 1:
            weight.data *= 4  # so that tokens differ
    model, texts = generator.model, ASKED
    with torch.no_grad():
        for _ in range(ANSWER):
            texts = torch.cat((texts, model.logits(model.states(texts)[:, -1]).argmax(1)[:, None]), 1)
    rollout = rollout_of(generator)
    for _ in range(2):  # what a round leaves in the pages changes nothing in the next
        assert torch.equal(rollout.answered(ASKED), texts.repeat_interleave(ANSWERS, 0))
    assert len(texts[:, PROMPT:].unique()) > 3


def test_answers_to_a_prompt_differ_and_follow_from_the_seed() -> None:
    made = actors()
    rollout = rollout_of(made.generator)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(rollout.answered(ASKED))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(found[0][:, :PROMPT], ASKED.repeat_interleave(ANSWERS, 0))
    assert len({tuple(text) for text in found[0].tolist()}) == TEXTS


def test_the_rule_wants_half_of_the_words() -> None:
    words = torch.arange(SIZE.vocabulary)[:, None]
    found, same, other = (Rule(SIZE.vocabulary, seed).rewards(words, 1) for seed in (3, 3, 4))
    assert found.sum() == SIZE.vocabulary // 2
    assert torch.equal(found, same)
    assert not torch.equal(found, other)
    inside, outside = int(found.argmax()), int(found.argmin())
    texts = torch.tensor([[outside, inside, inside, outside], [inside, outside, outside, inside]])
    assert Rule(SIZE.vocabulary, 3).rewards(texts, 3).tolist() == pytest.approx([2 / 3, 1 / 3])


def test_operations_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch counts them: with all of attention, keys of all pages of a graph, and what is computed again."""
    monkeypatch.setattr(  # which the counter takes for no tensor
        paged_generator,
        "causal_lower_right",
        lambda rows, end: torch.ones(rows, end, dtype=torch.bool).tril(end - rows),
    )
    made = actors()
    made.policy.recompute = False
    rollout = rollout_of(made.generator)
    advantages = torch.zeros(TEXTS)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        tokens = rollout.answered(ASKED)
    generating = counter.get_total_flops()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        made.loss(tokens, ANSWER, advantages, 0.04).backward()
    work, pair = rollout.work(), 4 * SIZE.layers * SIZE.width
    head, length = 2 * SIZE.head, PROMPT + ANSWER - 1
    (unit,) = (each for each in grpo.derived if each.unit == "TFLOP/s")
    options = {"prompts": PROMPTS, "answers": ANSWERS, "answer": ANSWER, **SIZES}
    whole = unit.of(TEXTS * ANSWER, options, work) * 1e12
    graphs = [-(-(TEXTS * LONGEST + 1) * part // GRAPHS) for part in range(1, GRAPHS + 1)]  # with nobody's page
    needed = (TEXTS * pages_for(end, PAGE) + 1 for end in range(PROMPT, PROMPT + ANSWER))
    keys = PAGE * sum(min(pages for pages in graphs if pages >= least) for least in needed)
    seen = PROMPTS * (PROMPT - 1) ** 2 + keys + 4 * TEXTS * length**2
    again = head * TEXTS * ANSWER  # of the policy, whose logits are not kept
    assert generating + counter.get_total_flops() - again == pytest.approx(whole + pair * (seen - work["attended"]))


# The workload


def test_on_the_cpu() -> None:
    """The first loss is 0: the ratio is 1, advantages of a group cancel out, and the policy is still the reference."""
    channel = run(grpo, 3, **SMALL)
    rows, done = channel.all(Slice), channel.one(Done)
    assert done.ran == "bf16_master"
    assert done.count == 3 * TEXTS * ANSWER
    assert channel.one(Ready).parameters == 3 * SIZE.parameters()
    assert channel.all(Loss)[0].value == pytest.approx(0.0, abs=1e-5)
    assert all((event.value or 0) > 0 for event in channel.all(GradientNorm))
    for row in rows:
        assert {*row.notes} == {*grpo.notes}
        assert 0 < sum(row.notes[phase] for phase in PHASES) <= row.length_s
        assert 0.0 <= row.notes["reward"] <= 1.0


def test_shares_of_the_phases() -> None:
    noted = dict(zip(PHASES, (6.0, 1.0, 2.0, 1.0), strict=True))
    shares = {each.unit: each.of(1.0, {}, noted) for each in grpo.derived if each.unit.startswith("% ")}
    assert shares == {"% generating": 60.0, "% scoring": 10.0, "% training": 20.0, "% sending weights": 10.0}


def test_answers_get_better() -> None:
    """The weights go back to the generator: what it says follows the rule more and more."""
    rewards = [row.notes["reward"] for row in run(grpo, 24, **SMALL | {"answers": 8, "learning_rate": 3e-3}).all(Slice)]
    first, last = sum(rewards[:4]) / 4, sum(rewards[-4:]) / 4
    assert first == pytest.approx(0.5, abs=0.1)
    assert last > first + 0.15


@pytest.mark.parametrize(("options", "told"), [({"answers": 1}, "--answers 1: "), ({"prompt": 1}, "--prompt 1: ")])
def test_a_group_needs_several_answers_and_a_prompt_two_tokens(options: dict[str, int], told: str) -> None:
    with pytest.raises(InputError, match=told):
        builtin_workloads()["grpo"].check(options)


def test_equal_seeds_draw_and_learn_the_same() -> None:
    first, again, other = (
        [event.value for event in run(grpo, 1, **SMALL, seed=seed).all(GradientNorm)] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other

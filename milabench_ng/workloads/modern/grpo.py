"""Post-training by reinforcement: a language model answers, a rule scores the answers, and the model learns."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, FromZero, Rate, workload
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.actors import Actors, group_advantages
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.modern.llm_serve import Server, Step
from milabench_ng.workloads.modern.serving import Integers, Mix, Plan, pages_for
from milabench_ng.workloads.modern.training import adamw
from milabench_ng.workloads.modern.work_formulas import BF16, STEP_FLOP

PHASES = ("generate_s", "score_s", "train_s", "send_s")
ROUND_S = f"({' + '.join(PHASES)})"
SAID = "(prompts * answers * answer)"
"""Tokens of a round."""
PASSES = 4
"""Of a text through all layers in training: the policy forward, and twice that backward, and the reference."""


def several_answers(*, prompt: int, answers: int) -> None:
    """Raise InputError for groups of one answer, and for prompts without anything to read."""
    if answers < 2:
        raise InputError(f"--answers {answers}: an answer is compared with others to the same prompt. Give at least 2")
    if prompt < 2:
        raise InputError(f"--prompt {prompt}: give at least 2 tokens")


@workload(
    unit="tokens",
    most_items="prompts * answers * answer",
    precision="bf16_master",
    bound="gpu-compute",
    notes=(*PHASES, "reward", "fed", "said", "attended"),
    derived=(
        Derived("% generating", f"100 * generate_s / {ROUND_S}"),
        Derived("% scoring", f"100 * score_s / {ROUND_S}"),
        Derived("% training", f"100 * train_s / {ROUND_S}"),
        Derived("% sending weights", f"100 * send_s / {ROUND_S}"),
        Derived("tokens/s while generating", f"{SAID} / generate_s"),
        Derived("TFLOP/s", f"rate / {SAID} * {STEP_FLOP} / 1e12"),
        Derived("MFU %", f"rate / {SAID} * {STEP_FLOP} / 1e10 / peak_tflops", BF16),
    ),
    fits=several_answers,
)
def grpo(
    bench: Bench,
    *,
    prompts: Count = 8,
    answers: Count = 8,
    prompt: Count = 256,
    answer: Count = 256,
    page: Count = 128,
    layers: Count = 16,
    width: Count = 2048,
    heads: Count = 16,
    kv_heads: Count = 8,
    inner: Count = 5632,
    vocabulary: Count = 32_768,
    learning_rate: Rate = 1e-6,
    divergence: FromZero = 0.04,
    graph: bool = True,
) -> None:
    """Train a language model by what a rule says of its answers: bound by the GPU's arithmetic.

    Group-relative policy optimisation (arXiv:2402.03300) in rounds: the generator of `llm_serve` draws several answers
    to each prompt, a rule scores them on the host, a step of AdamW makes the better ones of a group more probable, and
    the generator gets the new weights. The defaults have the model of `llm_pretrain`, with random weights. Prompts are
    random, and the rule wants words of one half of the vocabulary, drawn by the seed. An item is one token of an
    answer. Timed: all four phases, each also by itself.

    Options:
        prompts: of a round.
        answers: to each prompt.
        prompt: tokens of a prompt.
        answer: tokens of an answer.
        page: tokens of a page of keys and values.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        inner: width of the feed-forward part.
        vocabulary: words.
        learning_rate: of AdamW.
        divergence: weight of the distance from the model at the start, in the loss.
        graph: CUDA graphs of the step that says tokens; without, and on CPUs, the host launches each kernel.
    """
    size = Dimensions(layers=layers, width=width, heads=heads, kv_heads=kv_heads, inner=inner, vocabulary=vocabulary)
    texts = prompts * answers
    longest = pages_for(Mix(prompt, answer, 0).kept, page)
    with torch.device("meta"):
        actors = Actors(size, texts=texts, pages=texts * longest, page=page)
    server = Server(bench.place(actors).generator, texts, longest)
    rollout = Rollout(server, prompts, answers, prompt, answer)
    rule = Rule(vocabulary, bench.seed)
    optimizer = adamw(actors.policy.parameters(), learning_rate)
    server.warm(bench, prompt - 1)
    if graph and bench.device.type == "cuda":
        with torch.no_grad():
            server.capture()
    example = torch.zeros(texts, prompt + answer, dtype=torch.int64, device=bench.device)
    bench.rehearse(lambda: actors.loss(example, answer, torch.zeros(texts, device=bench.device), divergence))
    work = rollout.work()
    for asked in bench.measure(questions(bench.seed, prompts, prompt, vocabulary), count=texts * answer):
        with bench.notes.timed("generate_s"):
            tokens = rollout.answered(asked)
        with bench.notes.timed("score_s"):
            rewards = rule.rewards(tokens, answer)
            advantages = group_advantages(rewards.view(prompts, answers)).flatten().to(bench.device)
        with bench.notes.timed("train_s"):
            bench.step(actors.loss(tokens, answer, advantages, divergence), optimizer)
        with bench.notes.timed("send_s"):
            actors.send()
        for name, value in (work | {"reward": float(rewards.mean())}).items():
            bench.notes.add(name, value)


def questions(seed: int, prompts: int, length: int, vocabulary: int) -> Iterator[Tensor]:
    """Random prompts [prompts, length], the same for a seed."""
    drawn = np.random.default_rng(seed)
    while True:
        yield torch.from_numpy(drawn.integers(vocabulary, size=(prompts, length)))


class Rule:
    """An answer should have words of one half of the vocabulary, drawn by the seed."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self._half = torch.from_numpy(np.random.default_rng([seed, vocabulary]).permutation(vocabulary) % 2 == 0)

    def rewards(self, tokens: Tensor, answer: int) -> Tensor:
        """The share of such words in each answer [N], on the host, of texts [N, L] with answers at their end."""
        return self._half[tokens[:, -answer:].cpu()].float().mean(1)


class Rollout:
    """Answers of one length to prompts of one length, all texts at once.

    Texts have their first pages first, so that those in use stay together at the beginning. A prompt is read once, and
    its pages are copied for all of its answers.
    """

    def __init__(self, server: Server, prompts: int, answers: int, prompt: int, answer: int) -> None:
        self._server, self._model = server, server.model
        self._prompts, self._answers, self._prompt, self._answer = prompts, answers, prompt, answer
        device = self._model.tokens.device
        plans = list(plans_of(prompts * answers, prompt, answer, self._model.page))
        self._steps = [
            Step(plan, *(torch.from_numpy(part).to(device) for part in (plan.table, plan.position, plan.position[:0])))
            for plan in plans
        ]
        pages = torch.from_numpy(plans[0].table)[:, : pages_for(prompt - 1, self._model.page)].to(device)
        self._read = pages.view(prompts, answers, -1)
        """The pages of each text's prompt."""

    @torch.no_grad()
    def answered(self, asked: Tensor) -> Tensor:
        """Prompts [prompts, prompt] with the answers to each, [prompts x answers, prompt + answer]."""
        for tokens, pages in zip(asked, self._read[:, 0], strict=True):
            self._model.read(tokens[:-1], pages, 0)
        copies = self._read[:, 1:].flatten()
        originals = self._read[:, :1].expand(-1, self._answers - 1, -1).flatten()
        for kept in (self._model.keys, self._model.values):
            for layer in kept:
                layer[copies] = layer[originals]
        texts = asked.repeat_interleave(self._answers, 0)
        self._model.tokens.copy_(texts[:, -1])
        said = [self._server.step(step).clone() for step in self._steps]
        return torch.cat((texts, torch.stack(said, 1)), 1)

    def work(self) -> dict[str, float]:
        """What a round computes, as `STEP_FLOP` counts it; of causal attention, half."""
        texts, length = self._prompts * self._answers, self._prompt + self._answer - 1
        read, said = self._prompt - 1, texts * self._answer
        pairs, of_prompt = (tokens * (tokens + 1) / 2 for tokens in (length, read))
        return {
            "fed": self._prompts * read + said + PASSES * texts * length,
            "said": self._prompts + said + PASSES * said,
            "attended": self._prompts * of_prompt + texts * (pairs - of_prompt) + PASSES * texts * pairs,
        }


def plans_of(texts: int, prompt: int, answer: int, page: int) -> Iterator[Plan]:
    """The steps in which all texts say their answers after their prompts. Pure."""
    column = np.arange(pages_for(Mix(prompt, answer, 0).kept, page))
    table: Integers = 1 + column * texts + np.arange(texts)[:, None]
    for position in range(prompt - 1, prompt + answer - 1):
        yield Plan.of(table * (column <= position // page), np.full(texts, position))

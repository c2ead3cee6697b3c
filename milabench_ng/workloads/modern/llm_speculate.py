"""Serving: a small language model drafts tokens, and a large one verifies them in one step."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, Fraction, workload
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.speculator import Speculator
from milabench_ng.workloads.modern.llm_decode import WARM, captured
from milabench_ng.workloads.modern.work_formulas import BF16

PAGE = 128
"""Tokens of a page of keys and values."""


@workload(
    unit="tokens",
    most_items="concurrency * (drafts + 1)",
    precision="bf16_master",
    bound="gpu-memory",
    notes=("said", "gflop", "gbytes", "draft_s", "verify_s"),
    derived=(
        Derived("tokens/s per user", "rate / concurrency", curve_over="concurrency"),
        Derived("tokens per round", "said / concurrency"),
        Derived("% drafting", "100 * draft_s / (draft_s + verify_s)"),
        Derived("TFLOP/s", "rate / said * gflop / 1e3"),
        Derived("peak HBM %", "rate / said * gbytes * 100 / peak_gb_per_s", BF16),
    ),
)
def llm_speculate(
    bench: Bench,
    *,
    concurrency: Count = 1,
    drafts: Count = 4,
    acceptance: Fraction = 0.7,
    prompt: Count = 1024,
    answer: Count = 1024,
    layers: Count = 32,
    width: Count = 4096,
    heads: Count = 32,
    kv_heads: Count = 8,
    inner: Count = 14_336,
    draft_layers: Count = 16,
    draft_width: Count = 2048,
    draft_heads: Count = 32,
    draft_kv_heads: Count = 8,
    draft_inner: Count = 8192,
    vocabulary: Count = 128_256,
    graph: bool = True,
) -> None:
    """Generate tokens by speculative decoding: bound by the GPU's memory bandwidth.

    In a round (arXiv:2211.17192), a small model drafts tokens one by one, a large one reads all of them in one pass,
    and each text goes on with the accepted drafts and the next token of the large model. The defaults have the shapes
    of Llama 3.1 8B and Llama 3.2 1B. Their weights are random, so hardly a draft would be accepted by what the large
    model says: how many are, is drawn by the seed. Prompts are random keys and values, and texts are evenly spread over
    their answers at the start. An item is one token of a text; the latency of a batch is that of a round. Timed:
    planning, both models, each also by itself, the tokens to the host.

    Options:
        concurrency: texts at once.
        drafts: tokens that the small model drafts in a round.
        acceptance: probability that a draft is accepted if the one before it was.
        prompt: tokens of a prompt.
        answer: tokens after which a text is followed by the next one.
        layers: blocks of the large model.
        width: of its embedding and of all its layers.
        heads: of its attention.
        kv_heads: its heads of keys and values.
        inner: width of its feed-forward part.
        draft_layers: blocks of the small model, whose head is its embedding.
        draft_width: of its embedding and of all its layers.
        draft_heads: of its attention.
        draft_kv_heads: its heads of keys and values.
        draft_inner: width of its feed-forward part.
        vocabulary: words of both.
        graph: CUDA graphs, one for the drafts and one for their verification; without, and on CPUs, the host launches
            each kernel.
    """
    target = Dimensions(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        inner=inner,
        vocabulary=vocabulary,
        tied=False,
    )
    draft = Dimensions(
        layers=draft_layers,
        width=draft_width,
        heads=draft_heads,
        kv_heads=draft_kv_heads,
        inner=draft_inner,
        vocabulary=vocabulary,
    )
    with torch.device("meta"):
        model = Speculator(target, draft, texts=concurrency, drafts=drafts, length=prompt + answer + drafts, page=PAGE)
    bench.place(model).eval()
    parts: tuple[Callable[[], Tensor], ...] = (model.propose, model.verify)
    for _ in range(WARM):
        for part in parts:
            bench.warm(part)
    if graph and bench.device.type == "cuda":
        with torch.inference_mode():
            parts = tuple(map(captured, parts))
    propose, verify = parts

    plans = rounds(concurrency, drafts=drafts, acceptance=acceptance, prompt=prompt, answer=answer, seed=bench.seed)
    ahead = deque([next(plans)])

    def spoken(planned: Round) -> Tensor:
        model.given.copy_(planned.given)
        with bench.notes.timed("draft_s"):
            propose()
        with bench.notes.timed("verify_s"):
            said = verify()
        for name, value in work(target, draft, planned, drafts).items():  # while the device works
            bench.notes.add(name, value)
        ahead.append(bench.to_device(next(plans)))
        return said

    for planned in bench.measure(iter(ahead.popleft, None), count=lambda planned: planned.said):
        bench.infer(spoken, planned)


class Round(NamedTuple):
    """What is known of a round before it begins."""

    given: Tensor
    """The position of each text's last token, and how many drafts are accepted [2, N]."""
    said: int
    """Tokens of all texts."""
    seen: int
    """Those up to the last one of each, that one included."""


def work(target: Dimensions, draft: Dimensions, planned: Round, drafts: int) -> dict[str, float]:
    """What a round computes, rejected drafts like the others, and the bytes that it reads at least, in bf16. Pure.

    Both models read the last token of each text, and the target all drafts, the draft all but the last, and the token
    before the last one. Each pass reads the weights, and the keys and values of all that its tokens see.
    """
    texts, seen = planned.given.shape[1], planned.seen
    fed = texts * (drafts + 1)
    of_target, of_draft = (size.layers * (size.attention + size.feed_forward) for size in (target, draft))
    multiplied = fed * (of_target + of_draft + target.head) + texts * drafts * draft.head
    pairs = target.layers * target.query_width * (2 * seen + texts * drafts)
    pairs += draft.layers * draft.query_width * (2 * seen + texts * (drafts - 2))
    weights = of_target + target.head + drafts * (of_draft + draft.head)
    kept = target.layers * target.kv_width * 2 * (seen + texts * drafts)
    kept += draft.layers * draft.kv_width * drafts * (2 * seen + texts * (drafts - 1))
    return {
        "said": planned.said,
        "gflop": 2 * (multiplied + (drafts + 1) * pairs) / 1e9,
        "gbytes": 2 * (weights + kept) / 1e9,
    }


def rounds(texts: int, *, drafts: int, acceptance: float, prompt: int, answer: int, seed: int) -> Iterator[Round]:
    """Rounds without end; a text that has said its answer is followed by one with the same prompt."""
    drawn = np.random.default_rng(seed)
    answered = (2 * np.arange(texts) + 1) * answer // (2 * texts)
    while True:
        accepted = (drawn.random((texts, drafts)) < acceptance).cumprod(1).sum(1)
        given = np.stack((prompt + answered, accepted))
        yield Round(torch.from_numpy(given), int(accepted.sum()) + texts, int(given[0].sum()) + texts)
        answered += accepted + 1
        answered[answered >= answer] = 0

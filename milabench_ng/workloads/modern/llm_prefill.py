"""The first token of an answer: a language model reads a prompt."""

from typing import Literal

import torch
from torch import Tensor, nn

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.datasets.text.token_stream import Tokens128k
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.narrow_layers import (
    calibrating,
    for_inference,
    refuse_narrow,
    refuse_parts_of_blocks,
)
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.windows import windows
from milabench_ng.workloads.modern.work_formulas import BLOCKS, CAUSAL, HEAD, flop_rates, narrow_rates

FLOP = f"(2 * {BLOCKS} + 2 * {CAUSAL} + 2 * {HEAD} / length)"
"""Of a token of a prompt."""
WARM = 3
"""Prompts that are read before the clock."""


class FirstToken(nn.Module):
    """A transformer that says what follows a prompt."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def reset_parameters(self) -> None:
        """Draw the weights."""
        self.model.reset_parameters()

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Prompts [N, L] to the most probable next token [N], and the logits of all [N, V]."""
        logits = self.model.logits(self.model.states(tokens)[:, -1])
        return logits.argmax(1), logits


def one_kind_of_numbers(*, fp8: bool, numbers: str, width: int, heads: int, kv_heads: int, inner: int) -> None:
    """Raise InputError for two kinds of numbers, and for sizes that are no multiples of blocks."""
    if fp8 and numbers not in ("bf16", "fp8"):
        raise InputError(f"--fp8 is --numbers fp8, and --numbers {numbers} was given: leave one out")
    kind = "fp8" if fp8 else numbers
    refuse_parts_of_blocks(kind, width=width, key_width=width // heads * kv_heads, inner=inner)


@workload(
    unit="tokens",
    most_items="batch_size * length",
    data=Tokens128k,
    precision="bf16_master",
    bound="gpu-compute",
    derived=(
        *flop_rates(FLOP, f"(2 * {BLOCKS} + 4 * {CAUSAL} + 2 * {HEAD} / length)", {"fp8": False, "numbers": "bf16"}),
        *narrow_rates(FLOP, "fp8", "mxfp8", "nvfp4"),
        Derived("MFU % (of the fp8 peak)", f"rate*{FLOP}/1e10/peak_fp8_tflops", {"fp8": True}),
        Derived("ms to first token", "1000 * batch_size * length / rate"),
    ),
    converts={"float8": "fp8 + (numbers == 'fp8') + (numbers == 'mxfp8')", "float4": "(numbers == 'nvfp4')"},
    formerly={"numbers": "bf16", "compile": False},
    fits=one_kind_of_numbers,
)
def llm_prefill(
    bench: Bench,
    *,
    batch_size: Count = 1,
    length: Count = 2048,
    layers: Count = 32,
    width: Count = 4096,
    heads: Count = 32,
    kv_heads: Count = 8,
    inner: Count = 14_336,
    vocabulary: Count = 128_256,
    numbers: Literal["bf16", "fp8", "mxfp8", "nvfp4"] = "bf16",
    fp8: bool = False,
    compile: bool = False,  # the option's name
) -> None:
    """Read prompts up to the first token of the answer: bound by the GPU's arithmetic.

    The defaults have the shape of Llama 3.1 8B, with random weights. The head sees the last position alone. An item is
    one token of a prompt; the latency of a batch is the time to the first token. Timed: forward, outputs to the host;
    the prompts are on the device.

    Options:
        batch_size: prompts at once.
        length: tokens of a prompt.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        inner: width of the feed-forward part.
        vocabulary: words.
        numbers: what the linear layers of the blocks multiply. fp8: e4m3, with one scale a tensor, which a prompt in
            bf16 fixes before the clock; compute capability 8.9 and later. mxfp8: e4m3 with a scale for each 32 numbers.
            nvfp4: e2m1 with a scale for each 16, and one a tensor, fixed before the clock; both compute capability 10.0
            and later.
        fp8: the same as --numbers fp8.
        compile: torch.compile of each block; it works before the clock.
    """
    kind = "fp8" if fp8 else numbers
    refuse_narrow(bench.device, kind)
    size = Dimensions(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        inner=inner,
        vocabulary=vocabulary,
        tied=False,
    )
    with torch.device("meta"):
        model = FirstToken(Transformer(size))
    bench.place(model).eval()
    prompts = (tokens for tokens, _ in windows(bench, batch_size, length, vocabulary))
    if kind != "bf16":
        with calibrating(model.model.blocks) as largest:
            bench.warm(model, next(prompts))
        for_inference(model.model.blocks, kind, largest)
    forward = bench.compile(model, next(prompts), parts=model.model.blocks) if compile else model
    for _ in range(WARM):
        bench.warm(forward, next(prompts))
    for tokens in bench.measure(prompts, count=batch_size * length):
        bench.infer(forward, tokens)

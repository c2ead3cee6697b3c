"""Pretraining of a dense language model on one device."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from milabench_ng.bench import Bench, Count, Rate, workload
from milabench_ng.datasets.text.token_stream import Tokens32k
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.chunked_loss import chunked_loss
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.narrow_layers import for_training, refuse_narrow, refuse_parts_of_blocks
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.training import adamw, train
from milabench_ng.workloads.modern.windows import windows
from milabench_ng.workloads.modern.work_formulas import CAUSAL, FIRST_LOSS, WEIGHTS, flop_rates, narrow_rates

FLOP = f"6 * ({WEIGHTS} + {CAUSAL})"
"""Of a token."""


def one_way_to_compute(
    *,
    compile: bool,
    blockwise: bool,
    numbers: str,
    batch_size: int,
    length: int,
    width: int,
    heads: int,
    kv_heads: int,
    inner: int,
) -> None:
    """Raise InputError for blocks that would be compiled by themselves, and are not compiled, and for odd sizes."""
    if blockwise and not compile:
        raise InputError("--blockwise goes with --compile")
    key_width = width // heads * kv_heads
    refuse_parts_of_blocks(numbers, tokens=batch_size * length, width=width, key_width=key_width, inner=inner)


@workload(
    unit="tokens",
    most_items="batch_size * length",
    data=Tokens32k,
    precision="bf16_master",
    bound="gpu-compute",
    auto_batch=True,
    derived=(
        *flop_rates(FLOP, f"6 * ({WEIGHTS} + 2 * {CAUSAL})", {"numbers": "bf16"}),
        *narrow_rates(FLOP, "fp8", "mxfp8"),
    ),
    first_loss=FIRST_LOSS,
    formerly={"blockwise": False, "numbers": "bf16"},
    fits=one_way_to_compute,
)
def llm_pretrain(
    bench: Bench,
    *,
    batch_size: Count = 8,
    length: Count = 4096,
    layers: Count = 16,
    width: Count = 2048,
    heads: Count = 16,
    kv_heads: Count = 8,
    inner: Count = 5632,
    vocabulary: Count = 32_768,
    learning_rate: Rate = 3e-4,
    numbers: Literal["bf16", "fp8", "mxfp8"] = "bf16",
    compile: bool = False,  # the option's name
    blockwise: bool = False,
) -> None:
    """Train a language model from random weights: bound by the GPU's arithmetic.

    The defaults are a dense model of 822,151,168 parameters with tied embeddings. AdamW with a constant rate. An item
    is one token. Timed: forward, backward, step; the text is on the device.

    Options:
        batch_size: texts per step.
        length: tokens of a text.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        inner: width of the feed-forward part.
        vocabulary: words.
        learning_rate: of AdamW.
        numbers: what the linear layers of the blocks multiply, forward and backward; weights stay in bf16. fp8: e4m3,
            gradients e5m2, with one scale a tensor, which each step finds anew; compute capability 8.9 and later.
            mxfp8: e4m3 with a scale for each 32 numbers; compute capability 10.0 and later.
        compile: torch.compile; it works before the clock.
        blockwise: compile each block by itself, as trainers of large models do, not all blocks in one piece.
    """
    refuse_narrow(bench.device, numbers)
    size = Dimensions(layers=layers, width=width, heads=heads, kv_heads=kv_heads, inner=inner, vocabulary=vocabulary)
    with torch.device("meta"):
        model = Transformer(size)
    if numbers != "bf16":
        for_training(model.blocks, numbers)
    bench.place(model)
    optimizer = adamw(model.parameters(), learning_rate)
    batches = windows(bench, batch_size, length, vocabulary)
    example = next(batches)
    forward = compiled_loss(bench, model, example[0], blockwise=blockwise) if compile else model
    train(bench, forward, optimizer, example, batches)


class Trunk(nn.Module):
    """All of a transformer but its head."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [N, L] to normalised states [N, L, D]."""
        return self.model.states(tokens)


def compiled_loss(
    bench: Bench, model: Transformer, example: Tensor, *, blockwise: bool
) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of ``model``, compiled up to its head for batches like ``example``."""
    states = bench.compile(Trunk(model), example, parts=model.blocks if blockwise else ())
    return lambda tokens, following: chunked_loss(states(tokens), model.readout, following, model.chunk)

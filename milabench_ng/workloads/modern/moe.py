"""Pretraining of a language model with routed experts."""

from typing import Literal

import torch

from milabench_ng.bench import Bench, Count, Rate, workload
from milabench_ng.datasets.text.token_stream import Tokens32k
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.experts import Experts, Products, products_for
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.training import adamw, train
from milabench_ng.workloads.modern.windows import windows
from milabench_ng.workloads.modern.work_formulas import CAUSAL, FIRST_LOSS, ROUTED_WEIGHTS, flop_rates


def equal_work(*, experts: int, active: int, batch_size: int, length: int) -> None:
    """Raise InputError unless all experts get the same number of tokens."""
    if experts % active or batch_size * length % (experts // active):
        raise InputError(
            f"--experts {experts} --active {active} --batch-size {batch_size} --length {length}: --experts must be a "
            "multiple of --active, and --batch-size times --length one of experts / active. Then all have the same work"
        )


@workload(
    unit="tokens",
    most_items="batch_size * length",
    data=Tokens32k,
    precision="bf16_master",
    bound="gpu-memory",
    auto_batch=True,
    derived=flop_rates(f"6 * ({ROUTED_WEIGHTS} + {CAUSAL})", f"6 * ({ROUTED_WEIGHTS} + 2 * {CAUSAL})"),
    fits=equal_work,
    first_loss=FIRST_LOSS,
    formerly={"products": "auto"},
)
def moe(
    bench: Bench,
    *,
    batch_size: Count = 4,
    length: Count = 4096,
    layers: Count = 8,
    width: Count = 1024,
    heads: Count = 8,
    kv_heads: Count = 8,
    inner: Count = 512,
    experts: Count = 64,
    active: Count = 8,
    vocabulary: Count = 32_768,
    learning_rate: Rate = 3e-4,
    products: Literal["auto", Products] = "auto",
) -> None:
    """Train a language model with routed experts from random weights: bound by the GPU's memory bandwidth.

    The defaults are half as wide and half as deep as OLMoE (arXiv:2409.02060): 872,956,928 parameters, of which a token
    is multiplied with 168,296,448. Each token goes through dealt experts, so that all have the same work; the router is
    trained. The products of the experts are PyTorch's `grouped_mm` where it has a fused kernel (compute capability 9
    and 10), and one batched product elsewhere: the record says which. AdamW with a constant rate. An item is one token.
    Timed: forward, backward, step; the text is on the device.

    Options:
        batch_size: texts per step.
        length: tokens of a text.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        inner: width of an expert.
        experts: of a block.
        active: experts that a token goes through.
        vocabulary: words.
        learning_rate: of AdamW.
        products: of the experts; auto: grouped_mm where it is one kernel, else batched.
    """
    size = Dimensions(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        inner=inner,
        vocabulary=vocabulary,
        experts=experts,
        active=active,
    )
    with torch.device("meta"):
        model = Transformer(size)
    taken = products_for(bench.device) if products == "auto" else products
    for layer in model.modules():
        if isinstance(layer, Experts):
            layer.products = taken
    bench.took("experts", taken)
    bench.place(model)
    optimizer = adamw(model.parameters(), learning_rate)
    batches = windows(bench, batch_size, length, vocabulary)
    train(bench, model, optimizer, next(batches), batches)

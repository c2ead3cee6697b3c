"""Question answering with BERT."""

from typing import Annotated, Literal

import torch
from msgspec import Meta

from milabench_ng.bench import Bench, Count, Derived, FromZero, Rate, workload
from milabench_ng.datasets.text.squad import Squad
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.bert import SpanFinder, span_loss
from milabench_ng.workloads.nvidia.weight_decay import decayed

LONGEST = 512
"""Positions that BERT knows."""
DECAY = 0.01


def equal_heads(*, width: int, heads: int) -> None:
    """Raise InputError unless all heads are of one width."""
    if width % heads:
        raise InputError(f"--width {width}: it must be a multiple of --heads ({heads})")


@workload(
    unit="sequences",
    data=Squad,
    distributed="if several",
    bound="gpu-compute",
    auto_batch=True,
    requires=("transformers",),
    extra="language",
    derived=(Derived("tokens/s", "rate * length"), Derived("ms/step", "1000 * batch_size / rate")),
    fits=equal_heads,
)
def bert_squad(
    bench: Bench,
    *,
    batch_size: Count = 8,
    layers: Count = 12,
    width: Count = 768,
    heads: Count = 12,
    inner: Count = 3072,
    length: Annotated[int, Meta(ge=1, le=LONGEST)] = 384,
    attention: Literal["eager", "sdpa"] = "eager",
    learning_rate: FromZero = 0.0,
    clip_norm: Rate = 1.0,
) -> None:
    """Find answers in texts with BERT (Devlin et al., arXiv:1810.04805), with random weights: bound by the GPU.

    The defaults are the base model, 109 million parameters; profiles give the sizes of the large one. The network is
    that of the library transformers. Cross entropy of an answer's first and last token; AdamW in its fused form;
    gradients clipped. An item is one sequence, padded to its full length. Timed: the wait for the loader processes,
    copy, forward, backward, clipping, step.

    As published, the learning rate is 0: the optimizer works, and leaves the weights as they are. There, fp16 meant
    fp16 weights with fp32 masters (apex O2): that is the precision half_master here, and amp is autocast.

    Options:
        batch_size: sequences per step.
        layers: blocks of attention and linear layers.
        width: of the embedding and of all layers, a multiple of heads.
        heads: of the attention.
        inner: width between the two linear layers of a block.
        length: tokens of a sequence, with padding; what is longer is cut.
        attention: eager, which is written out, as published; sdpa: PyTorch's fused kernels.
        learning_rate: of AdamW; 0 leaves the weights as they are.
        clip_norm: largest norm of the gradient.
    """
    sizes = {"layers": layers, "width": width, "heads": heads, "inner": inner, "longest": LONGEST}
    model = bench.place(SpanFinder(**sizes, attention=attention))
    optimizer = torch.optim.AdamW(decayed(model, DECAY), lr=learning_rate, fused=True)
    forward = bench.spread(model)
    batches = bench.loader(batch_size, samples=bench.data().padded(length))
    for tokens, real, parts, spans in bench.measure(batches):
        bench.step(span_loss(forward(tokens, real, parts), spans), optimizer, clip_norm=clip_norm)

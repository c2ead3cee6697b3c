"""Serving: a language model generates tokens for many texts at once."""

from collections.abc import Callable
from itertools import repeat

import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.generator import Generator
from milabench_ng.workloads.modern.work_formulas import BF16, WEIGHTS

WARM = 3
"""Steps before the clock, and before the capture of the graph."""


@workload(
    unit="tokens",
    precision="bf16_master",
    bound="gpu-memory",
    auto_batch=True,
    derived=(
        Derived("TFLOP/s", f"rate * (2 * {WEIGHTS} + 4 * layers * width * ring) / 1e12"),
        Derived(
            "peak HBM %",
            f"rate / batch_size * (2 * {WEIGHTS} + 4 * batch_size * layers * width * kv_heads / heads * ring)"
            " / 1e7 / peak_gb_per_s",
            BF16,
        ),
        Derived("ms per token", "1000 * batch_size / rate"),
    ),
)
def llm_decode(
    bench: Bench,
    *,
    batch_size: Count = 224,
    ring: Count = 4096,
    layers: Count = 32,
    width: Count = 4096,
    heads: Count = 32,
    kv_heads: Count = 8,
    inner: Count = 14_336,
    vocabulary: Count = 128_256,
    graph: bool = True,
) -> None:
    """Generate tokens, one for each text in a step: bound by the GPU's memory bandwidth.

    The defaults have the shape of Llama 3.1 8B, with random weights. Keys and values of the last tokens lie in a ring,
    whose oldest slot the next token overwrites, so that all steps do the same work. An item is one token; the latency
    of a batch is the time per output token. Timed: forward, the most probable tokens to the host.

    Options:
        batch_size: texts at once.
        ring: tokens that each token attends to.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        inner: width of the feed-forward part.
        vocabulary: words.
        graph: one CUDA graph per step; without, and on CPUs, the host launches each kernel.
    """
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
        model = Generator(size, batch_size, ring)
    bench.place(model).eval()
    for _ in range(WARM):
        bench.warm(model)
    with torch.inference_mode():
        step: Callable[[], Tensor] = captured(model) if graph and bench.device.type == "cuda" else model
    for _ in bench.measure(repeat(0), count=batch_size):
        bench.infer(step)


def captured(model: Generator) -> Callable[[], Tensor]:
    """A step of ``model``, which has made some, as one CUDA graph. The capture itself generates nothing."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens: Tensor = model()

    def replay() -> Tensor:
        graph.replay()
        return tokens

    return replay

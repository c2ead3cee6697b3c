"""Serving: a language model generates tokens for many texts at once, on one device or shared out over several."""

from collections.abc import Callable
from itertools import repeat

import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.generator import Generator
from milabench_ng.workloads.models.shared_generator import SharedGenerator
from milabench_ng.workloads.modern.work_formulas import BF16, WEIGHTS

WARM = 3
"""Steps before the clock, and before the capture of the graph."""


def divisible_model(*, batch_size: int, heads: int, kv_heads: int, inner: int, vocabulary: int, devices: int) -> None:
    """Raise InputError unless each device has as much of the model, and counts as many of the tokens."""
    shared = {"batch_size": batch_size, "heads": heads, "kv_heads": kv_heads, "inner": inner, "vocabulary": vocabulary}
    for name, number in shared.items():
        if number % devices:
            raise InputError(
                f"--{name.replace('_', '-')}: expected a multiple of the number of devices ({devices}), got {number}"
            )


@workload(
    unit="tokens",
    most_items="batch_size / devices",
    precision="bf16_master",
    distributed="if several",
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
        Derived("ms per token", "1000 * batch_size / rate / devices"),
    ),
    fits=divisible_model,
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
    """Generate tokens, one for each text in a step: bound by the GPU's memory bandwidth, or by slow links.

    The defaults have the shape of Llama 3.1 8B, with random weights. Keys and values of the last tokens lie in a ring,
    whose oldest slot the next token overwrites, so that all steps do the same work. Over several devices, they share
    out the model (tensor parallelism): each has a part of the heads, of the feed-forward parts and of the words, and
    two sums over all devices in each block. An item is one token, which of several devices one counts; the latency of
    a batch is the time per output token. Timed: forward, the most probable tokens to the host.

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
        model = (SharedGenerator if bench.ranks > 1 else Generator)(size, batch_size, ring)
    torch.manual_seed(bench.seed + bench.rank)  # each rank draws its own part
    bench.place(model).eval()
    for _ in range(WARM):
        bench.warm(model)
    with torch.inference_mode():
        step: Callable[[], Tensor] = captured(model) if graph and bench.device.type == "cuda" else model
    for _ in bench.measure(repeat(0), count=batch_size // bench.ranks):
        bench.infer(step)


def captured(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A ``step`` that was made before, as one CUDA graph. The capture itself generates nothing."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog asks for events all the time
        tokens = step()

    def replay() -> Tensor:
        graph.replay()
        return tokens

    return replay

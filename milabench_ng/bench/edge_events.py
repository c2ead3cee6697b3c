"""The events at the two edges of the measured loop: what is there to compute, and what really computes."""

from __future__ import annotations

import time

import torch

from milabench_ng.bench.layer_type import LayerType
from milabench_ng.bench.library_kernels import LibraryKernels
from milabench_ng.bench.meter import Meter
from milabench_ng.bench.precision import Precision, probe, ran
from milabench_ng.bench.trace import TraceRecorder
from milabench_ng.datasets.budget import Budget
from milabench_ng.model.events import Done, Ready


def ready_event(rank: int, requested: str, precision: Precision, trace: TraceRecorder) -> Ready:
    """Probe the device before the start. ``requested``: the precision mode by name."""
    dtypes = trace.dtypes()
    probed = probe(precision)
    return Ready(
        rank=rank,
        time_s=time.monotonic(),
        precision=requested,
        dtypes=dtypes,
        parameters=sum(dtypes.values()),
        ran=ran(dtypes, probed, precision),
        matmul_error=probed.matmul_error,
        skips=precision.scale.skips,
    )


def done_event(
    precision: Precision,
    trace: TraceRecorder,
    layer_type: LayerType,
    kernels: LibraryKernels,
    meter: Meter,
    budget: Budget | None,
) -> Done:
    """Probe the device after the stop, and sum up."""
    probed = probe(precision)
    device = precision.device
    spent = budget.spent() if budget else None
    return Done(
        rank=meter.rank,
        time_s=time.monotonic(),
        count=meter.count,
        steps=meter.steps,
        ran=ran(trace.dtypes(), probed, precision),
        matmul_error=probed.matmul_error,
        layer_dtype=layer_type.seen,
        kernels=kernels.seen(),
        peak_device_bytes=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        read_bytes=spent.bytes if spent else None,
        read_s=spent.seconds if spent else None,
    )

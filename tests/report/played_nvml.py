"""A stand-in for NVML that plays a trace: what GPUs answered, one step after another.

The quiet trace is that of an H200 under full load; a test changes what it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tests.node.fake_nvml import FakeGpu, FakeNvml

Answers = Mapping[Any, Any]
Step = Mapping[str, Answers]
"""By UUID, the answers that change at this step; numbers are fields, everything else questions."""
_FIELDS: dict[int, Any] = dict.fromkeys((74, 76, 269, 270, 271, 180, 52, 59), 0) | {82: 60, 94: 3, 38: 12}


def busy_gpu(number: int) -> FakeGpu:
    """An H200 that works, before the trace begins."""
    gpu = FakeGpu(
        f"GPU-{number}",
        f"00000000:0{number + 1}:00.0",
        fields=dict(_FIELDS),
        UtilizationRates=SimpleNamespace(gpu=99, memory=50),
        PowerUsage=690_000,
        TotalEnergyConsumption=1_000_000,
        Temperature=61,
        CurrentClocksEventReasons=4,
        EccMode=[1, 1],
        MigMode=[0, 0],
        RemappedRows=(0, 0, 0, 0),
        MaxPcieLinkGeneration=5,
        MaxPcieLinkWidth=16,
        CurrPcieLinkGeneration=5,
        CurrPcieLinkWidth=16,
        ComputeRunningProcesses=[],
        NvLinkState=1,
    )
    gpu.answers |= {("ClockInfo", 1): 1_755, ("ClockInfo", 2): 3_201}
    gpu.answers |= {("TotalEccErrors", 0): 0, ("TotalEccErrors", 1): 0}
    return gpu


class PlayedNvml(FakeNvml):
    """Its answers are those of the steps so far."""

    def play(self, trace: Sequence[Step]) -> Iterator[None]:
        """Take a step for each value."""
        for step in trace:
            for gpu in self.gpus:
                for question, answer in step.get(gpu.uuid, {}).items():
                    (gpu.fields if isinstance(question, int) else gpu.answers)[question] = answer
            yield

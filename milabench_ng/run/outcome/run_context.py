"""The context of a run: made once, passed along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from milabench_ng.fence.claims import Claim
from milabench_ng.fence.interface import Fence
from milabench_ng.fence.kernel.processes import Family, below_us
from milabench_ng.model.plan import Device, Launch
from milabench_ng.node.gpus import Gpu
from milabench_ng.records.isolation import Share
from milabench_ng.records.names import ResultFolder
from milabench_ng.records.stopping import Headline
from milabench_ng.run.execution.caching import PreparedFiles
from milabench_ng.run.execution.interruption import Interruption
from milabench_ng.run.execution.machinery import Machinery
from milabench_ng.run.execution.node_reader import NodeReader
from milabench_ng.run.execution.sampling import Sampler
from milabench_ng.run.execution.starting import Starter
from milabench_ng.run.outcome.observation import SessionFacts
from milabench_ng.run.persistence.run_progress import RunProgress

Judge = Callable[[Path], Headline]
"""What says how well the figures of a result folder are known: the report, which this side cannot import."""


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a run."""

    facts: SessionFacts
    environment: Mapping[str, str]
    """The environment of every worker, without its tenant's part."""
    fence: Fence
    claim: Claim
    """The run's CPUs and devices."""
    starter: Starter
    sampler: Sampler
    node: NodeReader
    gpus: tuple[Gpu, ...]
    data: Mapping[tuple[str, float], PreparedFiles]
    """Prepared datasets, by name and scale."""
    folder: ResultFolder
    progress: RunProgress
    judge: Judge
    own_pids: tuple[int, ...]
    machinery: Machinery
    foreign: tuple[Family, ...]
    """Processes below this one that were there before the run, as those of a shell script that became mnb (`exec`)."""
    interrupted: Interruption

    @property
    def below(self) -> tuple[Family, ...]:
        """All below this process, if none of it is somebody else's."""
        return () if self.foreign else (below_us(),)

    def files(self, launch: Launch) -> PreparedFiles | None:
        """The dataset that ``launch`` reads."""
        name = self.facts.planned.workload(launch).data_set(launch.arguments)
        return None if name is None else self.data[name, launch.data_scale]

    def on_cpu(self, launch: Launch, slot: str) -> bool:
        """Whether the memory of ``launch`` is RAM: on a CPU partition, or if its workload uses no other device."""
        return self.facts.planned.workload(launch).cpu_only or self.facts.planned.devices[slot].kind == "cpu"

    def memory(self, launch: Launch, slot: str) -> int:
        """Bytes that an automatic batch size may be made for."""
        planned = self.facts.planned
        device = None if self.on_cpu(launch, slot) else planned.devices[slot]
        return own_memory(planned.shares[slot], device, self.gpus)


def own_memory(share: Share, device: Device | None, gpus: Iterable[Gpu]) -> int:
    """Bytes that a tenant with ``share`` has: its part of the memory of ``device``, or its RAM if it uses none."""
    if device is None:
        return share.memory_bytes
    sizes = {gpu.uuid: gpu.memory_bytes for gpu in gpus}
    whole = sizes[str(device.uuid)] or 0  # planning refuses a device that does not tell
    return whole if share.device_part is msgspec.UNSET else int(whole * share.device_part)

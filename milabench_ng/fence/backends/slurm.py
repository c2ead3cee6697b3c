"""Back end `slurm`: inside an allocation, every tenant is its own step, which Slurm fences (srun(1), --exact).

Slurm chooses the CPUs and memory nodes of a step: the share adopts them, and the rest must be as requested. Workers
start cold, because a process forked elsewhere cannot enter a step. Limits that the kernel does not enforce there are
watched as in the affinity tier.
"""

from __future__ import annotations

import contextlib
import time

import msgspec

from milabench_ng.fence import isolation_check
from milabench_ng.fence.backends import affinity
from milabench_ng.fence.capabilities import Capabilities, SlurmJob
from milabench_ng.fence.interface import OOM_SCORE_ADJ, CounterFiles, FenceEntry, HolderAddress, IsolationMismatch
from milabench_ng.fence.kernel.processes import Process
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.kernel.whereabouts import outside
from milabench_ng.fence.process_tracking import Followed, Owners
from milabench_ng.fence.runs import Guardian
from milabench_ng.fence.sharing.shares import Bounds
from milabench_ng.fence.slurm_step.allocation import Step, step_groups, words_for
from milabench_ng.model.errors import IsolationError
from milabench_ng.model.units import MIB
from milabench_ng.node.cgroup_files import format_ids
from milabench_ng.records.isolation import Effective, GroupEvents, GroupsBy, IoMethod, ProcView, Share, Tier, Usage

NAME = "slurm"
WARM_WORKERS = False
GROUPS_BY: GroupsBy = "scheduler"
IO_METHOD: IoMethod | None = None
_COLD = "isolation: workers start cold, because Slurm starts each one."


def tier(capabilities: Capabilities) -> Tier | None:
    """The tier that this back end can offer here: None outside an allocation."""
    return capabilities.slurm.tier if capabilities.slurm else None


def bounds(capabilities: Capabilities) -> Bounds:
    """The bounds of the job on this node."""
    job = _job(capabilities)
    return Bounds(job.cpus, None, job.memory_bytes, f"Slurm job {job.id}")


class SlurmGroup:
    """One tenant's step; its processes are those that entered, and their descendants."""

    def __init__(self, name: str, share: Share, job: SlurmJob, guardian: Guardian, owners: Owners) -> None:
        self.name = name
        memory_bytes = share.memory_bytes // MIB * MIB
        self._step = Step(words_for(job, len(share.cpus), memory_bytes), f"the step of {name}")
        self._job = job
        holder = read_process(self._step.holder.pid)
        self._groups = step_groups(holder)
        self._kernel, self._task = self._groups.counters(), self._groups.task_counters()
        self.share = msgspec.structs.replace(
            share,
            cpus=self._cpus(share, holder),
            mems=self._limits().mems or share.mems,
            memory_bytes=memory_bytes,
        )
        self._followed = Followed(name, guardian, owners)
        self._last: Usage | None = None
        self._events = GroupEvents()
        self._stopped = 0
        self._watched_s = -affinity.WATCH_S
        self._at_end: tuple[Effective, GroupEvents] | None = None

    @property
    def entry(self) -> FenceEntry:
        door = HolderAddress(self._step.socket, *self._step.holder)
        return FenceEntry(cpus=self.share.cpus, oom_score_adj=OOM_SCORE_ADJ, door=door)

    @property
    def files(self) -> CounterFiles:
        limited = self._groups.limited
        if limited is None:
            return CounterFiles()
        current = "memory.current" if self._groups.v2 else "memory.usage_in_bytes"
        cpu = str(limited / "cpu.stat") if self._groups.v2 else None
        return CounterFiles(str(limited / "memory.stat"), str(limited / current), cpu)

    def verify(self, process: Process) -> tuple[Effective, ProcView]:
        """Verify it as the siblings do; from then on, it and its descendants are this tenant's."""
        self._followed.adopt(process)
        effective, proc = self.effective(), read_process(process.pid)
        isolation_check.check(self.name, self.share, effective, proc, {})
        if step_groups(proc) != self._groups:
            raise IsolationMismatch(f"isolation: process {process.pid} of {self.name} is not in its step: run stopped.")
        lack = [
            *(["CPUs"] if self._job.cpus_held and effective.cpus is None else []),
            *(["RAM"] if self._job.tier == "full" and effective.memory_bytes is None else []),
        ]
        if lack:
            raise IsolationMismatch(
                f"isolation: the step of {self.name} is not held to its {' and '.join(lack)}: run stopped."
            )
        return effective, proc

    def effective(self) -> Effective:
        return self._at_end[0] if self._at_end else self._limits()

    def events(self) -> GroupEvents:
        seen = self._at_end[1] if self._at_end else self._counted()
        return msgspec.structs.replace(seen, oom_kill=seen.oom_kill + self._stopped)

    def usage(self) -> Usage:
        """Usage from the step's groups as far as they count it; the rest is the sum over the processes."""
        if self._at_end is None:
            with contextlib.suppress(FileNotFoundError):  # Slurm has ended the step
                counted = self._kernel.usage() if self._groups.limited else self._followed.usage()
                cpu_usec = self._followed.cpu_usec() if counted.cpu_usec is None else counted.cpu_usec
                self._last = isolation_check.with_maxima(
                    self._last, msgspec.structs.replace(counted, cpu_usec=cpu_usec)
                )
        return self._last or Usage()

    def watch(self) -> Usage:
        """Kill what the kernel does not: v1 kills only one process for memory, and none without a limit."""
        now_s = time.monotonic()
        if self._last is not None and now_s - self._watched_s < affinity.WATCH_S:
            return self._last
        self._watched_s = now_s
        self._followed.pids()
        usage = self.usage()
        if self._at_end is None and self._job.tier != "full" and (usage.memory_bytes or 0) > self.share.memory_bytes:
            self._stopped += 1
        if self.events().oom_kill:
            self.kill()
        return usage

    def pids(self) -> tuple[int, ...]:
        return self._followed.pids()

    def outside(self, pid: int) -> str:
        return outside(pid, {}, self.share.cpus)

    def kill(self) -> None:
        """Kill the processes. The step, with its holder, stays, so that its counters can still be read."""
        self._followed.kill()

    def remove(self, patience_s: float = 2.0) -> bool:
        """End the tenant's processes, then the step; ask Slurm to kill a step that does not end."""
        if self._at_end is None:
            self._at_end = self._limits(), self._counted()
        ended = self._followed.end(patience_s)
        if self._step.close(patience_s):
            return ended
        self._step.cancel()
        return False

    def _cpus(self, share: Share, holder: ProcView) -> tuple[int, ...]:
        """The step's CPUs. If Slurm does not bind, the requested ones, which the entry sets."""
        given = holder.cpus_allowed
        if len(given) == len(share.cpus):
            return given
        if not self._job.cpus_held and set(share.cpus) <= set(given):
            return share.cpus
        self._step.close(patience_s=10.0)
        raise IsolationError(
            f"isolation: {self.name} asked Slurm for {len(share.cpus)} CPUs, but its step has {len(given)}. Ask for "
            "whole cores (sbatch --exclusive), or for a number of CPUs that the tenants can share equally."
        )

    def _limits(self) -> Effective:
        """The step's limits; none once Slurm has ended it. A limit of the whole job is not one of this tenant."""
        try:
            found = self._kernel.limits()
        except FileNotFoundError:
            return Effective()
        if self._job.consumable:
            return found
        return msgspec.structs.replace(found, memory_bytes=None, swap_bytes=None)

    def _counted(self) -> GroupEvents:
        try:
            self._events = self._task.events()
        except FileNotFoundError:  # Slurm has ended the step
            return self._events
        return self._events


class SlurmFence:
    """The steps of one run; Slurm names them, and the guardian knows the sessions."""

    backend = NAME
    groups_by = GROUPS_BY

    def __init__(self, capabilities: Capabilities) -> None:
        self._job = _job(capabilities)
        self.tier = self._job.tier
        self.mode = capabilities.mode
        self.kernel = capabilities.kernel
        self.parent = f"Slurm job {self._job.id} on {self._job.node}, CPUs {format_ids(self._job.cpus)}"
        mark = (affinity.MARK,) if self.tier == "affinity" else ()
        self.notes = (*self._job.reasons, _COLD, *mark)
        self._guardian = Guardian()
        self._owners: Owners = {}
        self._groups: list[SlurmGroup] = []

    def create(self, name: str, share: Share) -> SlurmGroup:
        self._groups.append(SlurmGroup(name, share, self._job, self._guardian, self._owners))
        return self._groups[-1]

    def close(self) -> tuple[str, ...]:
        left = [group for group in self._groups if not group.remove(patience_s=10.0)]
        self._guardian.dismiss()  # it goes on trying for longer
        still = [group.name for group in left if not group.remove(patience_s=0.0)]
        return tuple(f"isolation: the step of {name} is still running." for name in still)


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> SlurmFence:  # noqa: ARG001
    """Open the fence of one run; Slurm names its steps and keeps other runs away from their resources."""
    return SlurmFence(capabilities)


def _job(capabilities: Capabilities) -> SlurmJob:
    assert capabilities.slurm is not None, "the back end is chosen inside an allocation only"
    return capabilities.slurm

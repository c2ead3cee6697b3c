"""The interface of every back end: a `Fence` makes `Group`s; a `Group` holds one tenant and can prove it.

All calls return within milliseconds, so that one thread can run them between events, except `remove` and `close`, which
wait a stated time for killed processes to be gone, and `create` if Slurm makes the group.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from milabench_ng.fence.kernel.processes import Family, Process
from milabench_ng.model.errors import IsolationError
from milabench_ng.records.isolation import Effective, GroupEvents, GroupsBy, Mode, ProcView, Share, Tier, Usage

OOM_SCORE_ADJ = 500
"""The kernel kills tenants before anything else of the node."""


class IsolationMismatch(IsolationError):  # noqa: N818  (the name of the finding, not of a failure of ours)
    """The kernel gives a tenant something other than its share."""


class HolderAddress(msgspec.Struct, frozen=True):
    """Entry to a fence through another process: the socket of the holder in a Slurm step, its pid and its start."""

    socket: str
    pid: int
    start: int

    @property
    def inside(self) -> Family:
        """What the holder has started."""
        return Family(Process(self.pid, self.start), itself=False)


class FenceEntry(msgspec.Struct, frozen=True):
    """What a process must do to enter the fence (`fence.entry` does it): plain JSON, no paths to look up.

    `procs` are files to write "0" to, in this order; `cpus` the affinity to set, empty to leave it alone;
    `shm_bytes` the size of its own /dev/shm, which vanishes with its last process (None: keep the node's);
    `confined`: whether it gives up the means to leave, as far as it may (`fence.entry.confine`);
    `device_files`: with that, all that stays of their folder, such as `/dev/dri` (empty: leave it alone);
    `door` what starts the process inside (`fence.slurm_step.step`), None if it enters by itself.
    """

    procs: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    oom_score_adj: int | None = None
    shm_bytes: int | None = None
    confined: bool = False
    device_files: tuple[str, ...] = ()
    door: HolderAddress | None = None

    def command(self, argv: Sequence[str], descriptors: int = 3, last: bool = True) -> list[str]:
        """The command line that enters and becomes `argv`; start it from a thread that stays alive (PDEATHSIG).

        `descriptors`: how many file descriptors, from 0 on, `argv` keeps; all other inherited ones are closed.
        `last`: whether it enters no other group later, as the ranks of several devices do.
        """
        parent = self.door.pid if self.door else os.getpid()
        own = {"parent_pid": parent, "descriptors": descriptors, "last": last}
        order = msgspec.json.encode({**msgspec.to_builtins(self), **own}).decode()
        enter = [*_program("entry.py"), order, "--", *argv]
        if self.door is None:
            return enter
        return [
            *_program("slurm_step/step.py"),
            "call",
            self.door.socket,
            str(os.getpid()),
            str(descriptors),
            "--",
            *enter,
        ]


class CounterFiles(msgspec.Struct, frozen=True):
    """The kernel's files about a group that are worth sampling; None for what is not counted (`telemetry.tenant`)."""

    memory_stat: str | None = None
    memory_current: str | None = None
    cpu_usage: str | None = None


def _program(name: str) -> list[str]:
    """The start of the command line of a program in this package; isolated, so that it starts fast."""
    return [sys.executable, "-I", "-S", str(Path(__file__).parent / name)]


class Group(Protocol):
    """One tenant's fence for one launch; newly made, so that its counters start at 0."""

    name: str
    share: Share
    """The requested share; in a Slurm step, with the CPUs and memory nodes that Slurm chose."""

    @property
    def entry(self) -> FenceEntry: ...

    @property
    def files(self) -> CounterFiles: ...

    def verify(self, process: Process) -> tuple[Effective, ProcView]:
        """Compare what the kernel enforces on a process, which is known to be of this launch, with the share.

        Raises IsolationMismatch if it differs, ProcessLookupError if the process is gone, and another OSError if it
        cannot be read.
        """

    def effective(self) -> Effective:
        """The limits as the kernel reports them now, or did before `kill` (which forbids forks by a limit)."""

    def events(self) -> GroupEvents:
        """The current counters."""

    def usage(self) -> Usage:
        """Usage so far, with the maxima over all calls of this and `watch`."""

    def watch(self) -> Usage:
        """Read what has no maximum in the kernel, and do what the kernel leaves to us (kill the rest after an
        out-of-memory kill on v1, stop a tenant above its RAM share in the affinity tier). Call it several times a
        second. Returns a reading that may lack all else that `usage` has."""

    def pids(self) -> tuple[int, ...]:
        """The processes in the group at this moment."""

    def outside(self, pid: int) -> str:
        """What of process `pid`, or of a thread of it, is outside this fence; empty if nothing is, or it has ended."""

    def kill(self) -> None:
        """Send SIGKILL to every process in the group and forbid forks. Does not wait.

        Raises NotOursError, after all others are killed, if a process is in it that mnb never signals.
        """

    def remove(self, patience_s: float = 2.0) -> bool:
        """Kill what is left, wait up to `patience_s` seconds for it to be gone, remove the group.

        Returns False if something is left (a process in the kernel, unpinning memory): call again."""


class Fence(Protocol):
    """The fence of one run."""

    backend: str
    groups_by: GroupsBy
    tier: Tier
    mode: Mode
    kernel: str
    parent: str
    notes: tuple[str, ...]

    def create(self, name: str, share: Share) -> Group:
        """Make one tenant's group for one launch. Raises IsolationError if the kernel refuses."""

    def close(self) -> tuple[str, ...]:
        """Remove all remaining groups and the run's own, and dismiss the guardian. Waits some seconds at most.

        Returns a sentence for each group that is left."""

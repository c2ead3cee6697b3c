"""The back ends, best first, and which of them a run gets."""

from __future__ import annotations

import os
import subprocess
from typing import Literal, Protocol

from milabench_ng.errors import IsolationError
from milabench_ng.fence import runs
from milabench_ng.fence.backends import affinity, cgroup1, cgroup2, none, scope, slurm
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import Fence, FenceEntry
from milabench_ng.fence.probing.probe import probe
from milabench_ng.fence.sharing.shares import Bounds
from milabench_ng.records.isolation import Tier

Wish = Literal["auto", "full", "partial", "affinity", "none"]


class Backend(Protocol):
    """The shape of a back end's module."""

    NAME: str
    WARM_WORKERS: bool
    """Whether a worker can be forked elsewhere and then enter."""

    def tier(self, capabilities: Capabilities) -> Tier | None:
        """What it offers on this node, None for nothing."""

    def bounds(self, capabilities: Capabilities) -> Bounds:
        """What its tenants may share among them."""

    def open_fence(self, capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> Fence:
        """The fence of one run."""


# A new back end is one more module of that shape, and its place in this line. Slurm stands before the groups that root
# can make anywhere: those would leave the allocation.
BACKENDS: tuple[Backend, ...] = (scope, slurm, cgroup2, cgroup1, affinity, none)


def choose(capabilities: Capabilities, isolation: Wish) -> Backend:
    """The back end for a wish: `auto` is the best there is, `full` and `partial` at least that or an error.

    Raises IsolationError (exit 3) with the reasons that the probe found.
    """
    if isolation in (affinity.NAME, none.NAME):
        return affinity if isolation == affinity.NAME else none
    best = next(backend for backend in BACKENDS if backend.tier(capabilities))
    enough = {"auto": ("full", "partial", "affinity"), "partial": ("full", "partial"), "full": ("full",)}[isolation]
    if best.tier(capabilities) not in enough:
        reasons = " ".join(best_reasons(capabilities)) or "isolation: the kernel can hold neither CPUs nor RAM here."
        raise IsolationError(f"{reasons} Asked for --isolation {isolation}, this node gives {best.tier(capabilities)}.")
    return best


def best_reasons(capabilities: Capabilities) -> tuple[str, ...]:
    """Why no more can be had than there is: in an allocation it is Slurm that says."""
    return capabilities.slurm.reasons if capabilities.slurm else capabilities.messages


def bounds(capabilities: Capabilities, isolation: Wish) -> Bounds:
    """What the tenants of a run with this wish may share among them. Raises IsolationError as `choose`."""
    return choose(capabilities, isolation).bounds(capabilities)


def open_fence(capabilities: Capabilities, isolation: Wish, run_id: str, holds: str = "") -> Fence:
    """The fence of one run; `holds` says in words what it uses, for whoever finds it in the way: `GPUs 0-7`.

    Raises IsolationError if the wish cannot be granted.
    """
    return choose(capabilities, isolation).open_fence(capabilities, run_id, holds, own_shm_works())


def reap(capabilities: Capabilities, allow_concurrent: bool = False) -> list[str]:
    """Remove what dead runs left, one sentence for each; before `open_fence`.

    Raises IsolationError if another run is alive, unless `allow_concurrent`.
    """
    places = [capabilities.parents, *((other,) for other in scope.other_scopes(capabilities))]
    return [said for parents in places if parents for said in runs.reap(parents, allow_concurrent)]


def enter_scope(isolation: Wish, cgroup_parent: str | None) -> None:
    """To be called before anything is started: begins this program anew in a systemd scope where one is needed."""
    if isolation not in (affinity.NAME, none.NAME) and cgroup_parent is None:
        scope.enter(probe())


def own_shm_works() -> bool:
    """Whether a process can give itself a /dev/shm of its own here; found out by letting one do it."""
    if os.geteuid() != 0:
        return False
    command = FenceEntry(shm_bytes=1 << 20).command(["true"])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0

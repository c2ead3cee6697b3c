"""The back ends, best first, and the choice of one for a run."""

from __future__ import annotations

import os
import subprocess
from typing import Literal, Protocol

from milabench_ng.fence import runs
from milabench_ng.fence.backends import affinity, cgroup1, cgroup2, none, scope, slurm
from milabench_ng.fence.cache_groups import reap_cache_groups
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import Fence, FenceEntry
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.probing.probe import probe
from milabench_ng.fence.sharing.shares import Bounds
from milabench_ng.model.errors import InputError, IsolationError
from milabench_ng.records.isolation import Confinement, GroupsBy, IoMethod, Tier

IsolationRequest = Literal["auto", "full", "partial", "affinity", "none"]


class Backend(Protocol):
    """The interface of a back end's module."""

    NAME: str
    WARM_WORKERS: bool
    """Whether a worker can be forked elsewhere and then enter."""
    GROUPS_BY: GroupsBy
    IO_METHOD: IoMethod | None
    """How it limits I/O, if the kernel has the controller; None if it does not."""

    def tier(self, capabilities: Capabilities) -> Tier | None:
        """The tier that it offers on this node; None for nothing."""

    def bounds(self, capabilities: Capabilities) -> Bounds:
        """What its tenants may divide among themselves."""

    def open_fence(self, capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> Fence:
        """Open the fence of one run."""


# To add a back end, add a module with that interface and its place here. Slurm comes before the groups that root can
# make anywhere: those would leave the allocation.
BACKENDS: tuple[Backend, ...] = (scope, slurm, cgroup2, cgroup1, affinity, none)


def choose(capabilities: Capabilities, isolation: IsolationRequest) -> Backend:
    """The back end for a wish: `auto` is the best available, `full` and `partial` at least that or an error.

    Raises IsolationError (exit 3) with the reasons that the probe found.
    """
    if (named := _named(isolation)) is not None:
        return named
    best = next(backend for backend in BACKENDS if backend.tier(capabilities))
    enough = {"auto": ("full", "partial", "affinity"), "partial": ("full", "partial"), "full": ("full",)}[isolation]
    if best.tier(capabilities) not in enough:
        reasons = " ".join(best_reasons(capabilities)) or "isolation: the kernel can hold neither CPUs nor RAM here."
        raise IsolationError(
            f"{reasons} Asked for --isolation {isolation}, but this node offers {best.tier(capabilities)}."
        )
    return best


def _named(isolation: IsolationRequest) -> Backend | None:
    """The back end that a wish names; None if it asks for a tier."""
    return next((backend for backend in BACKENDS if isolation == backend.NAME), None)


def require_groups(capabilities: Capabilities, isolation: IsolationRequest, parent: str) -> None:
    """Raise InputError unless a run with this wish makes its groups below ``parent``, which the user named."""
    if choose(capabilities, isolation).GROUPS_BY != "mnb":
        why = " ".join(best_reasons(capabilities)) or f"--isolation {isolation} makes no groups."
        raise InputError(f"--cgroup-parent {parent}: no group can be made below it. {why}")


def require_cache_groups(capabilities: Capabilities, isolation: IsolationRequest) -> None:
    """Raise IsolationError unless tenants of a run with this wish can have parts of caches: groups take root."""
    backend = choose(capabilities, isolation)
    if backend.GROUPS_BY != "mnb":
        why = " ".join(best_reasons(capabilities)) or f"--isolation {isolation} makes no groups."
        raise IsolationError(f"isolation: --cache-shares cannot be held by isolation {backend.NAME!r}. {why}")


def best_reasons(capabilities: Capabilities) -> tuple[str, ...]:
    """Why no better tier is available; in an allocation, Slurm decides."""
    return capabilities.slurm.reasons if capabilities.slurm else capabilities.messages


def bounds(capabilities: Capabilities, isolation: IsolationRequest) -> Bounds:
    """What the tenants of a run with this wish may divide among themselves. Raises IsolationError like `choose`."""
    return choose(capabilities, isolation).bounds(capabilities)


def above(capabilities: Capabilities, isolation: IsolationRequest) -> str:
    """The group whose CPU quota, and that of those above it, holds for the tenants of a run with this wish.

    Empty if it cannot be seen. Tenants without groups of ours inherit that of this process.
    """
    ours = choose(capabilities, isolation).GROUPS_BY == "mnb"
    return capabilities.above if ours else capabilities.own_cpu


def open_fence(capabilities: Capabilities, isolation: IsolationRequest, run_id: str, holds: str = "") -> Fence:
    """Open the fence of one run; `holds` describes what it uses, for runs that find it in the way: `GPUs 0-7`.

    Raises IsolationError if the wish cannot be granted.
    """
    return choose(capabilities, isolation).open_fence(capabilities, run_id, holds, own_shm_works())


def reap(capabilities: Capabilities, allow_concurrent: bool = False) -> list[str]:
    """Remove what dead runs left, returning one sentence for each; call it before `open_fence`.

    Raises InUseError if another run is alive, unless `allow_concurrent`.
    """
    places = [capabilities.parents, *((other,) for other in scope.other_scopes(capabilities))]
    groups = [said for parents in places if parents for said in runs.reap(parents, allow_concurrent)]
    return [*groups, *reap_cache_groups()]


def enter_scope(isolation: IsolationRequest, cgroup_parent: str | None) -> None:
    """Restart this program in a systemd scope if one is needed; must be called before anything is started."""
    if _named(isolation) is None and cgroup_parent is None:
        scope.enter(probe())


def confinement() -> Confinement | None:
    """What a tenant of this user gives up here, determined by trying it; None if that did not work."""
    pipe = subprocess.PIPE
    command = FenceEntry(confined=True).command(["cat"])
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"in\n")
        process.stdin.flush()
        try:
            return read_process(process.pid).confinement if process.stdout.readline() else None
        except OSError:  # it has ended, or cannot be read
            return None


def own_shm_works() -> bool:
    """Whether a process can give itself its own /dev/shm here, determined by trying it."""
    if os.geteuid() != 0:
        return False
    command = FenceEntry(shm_bytes=1 << 20).command(["true"])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0

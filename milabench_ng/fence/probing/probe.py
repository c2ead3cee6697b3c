"""Finds out what can be fenced by trying it: makes a group, opens its files, removes it.

Permission bits lie (read-only mounts, nsdelegate, namespaces), so it does not rely on them.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.fence.kernel.cgroupfs import Cpuset1, Group2
from milabench_ng.fence.kernel.mounts import (
    CgroupMount,
    find,
    mode_of,
    own_scope,
    parse_disabled,
    parse_mountinfo,
    parse_own_groups,
)
from milabench_ng.fence.kernel.occupants import foreign
from milabench_ng.fence.kernel.quotas import cpu_limits
from milabench_ng.fence.probing.messages import explain
from milabench_ng.fence.slurm_step.allocation import read_job
from milabench_ng.node.topology import read_topology
from milabench_ng.records.isolation import Mode
from milabench_ng.records.surroundings import tightest

# The file of each controller that must exist and be writable; v1 calls io blkio.
_FILES_1 = {
    "cpuset": "cpuset.cpus",
    "memory": "memory.limit_in_bytes",
    "pids": "pids.max",
    "cpuacct": "cpuacct.usage",
    "blkio": "blkio.throttle.read_bps_device",
}
_FILES_2 = {"cpuset": "cpuset.cpus", "memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max", "io": "io.max"}


def probe(cgroup_parent: str | None = None) -> Capabilities:
    """Find out what this node lets this process fence. Leaves nothing behind.

    `cgroup_parent` is a group, as in /proc/PID/cgroup, below which to make ours, instead of the hierarchies' roots.
    """
    mounted = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    mounts = tuple(mount for mount in mounted if Path(mount.point, "cgroup.procs").exists())  # not below another mount
    own = parse_own_groups(Path("/proc/self/cgroup").read_text())
    disabled = parse_disabled(Path("/proc/cgroups").read_text())
    unified = find(mounts, "")
    v2_controllers = Group2(unified.point).core.controllers if unified else ()
    mode = mode_of(mounts, v2_controllers)
    parent = (cgroup_parent or "").strip("/")
    if mode == "v2" and unified:
        controllers = _try_v2(unified, own.get("", "/"), parent, disabled)
    elif mode in ("v1", "hybrid"):
        controllers = {name: _try_v1(mounts, name, parent, disabled) for name in _FILES_1}
    else:
        controllers = {name: Controller(False, why=f"cgroups are mounted in mode {mode}") for name in _FILES_2}
    found = Capabilities(
        mode=mode,
        kernel=os.uname().release,
        root=os.geteuid() == 0,
        controllers=controllers,
        unified=_try_unified(unified, parent) if mode == "hybrid" and unified else "",
        own=_own_directory(mounts, own, mode),
        swap_bytes=read_topology().swap_bytes,
    )
    found = _with_quota(found, mounts, own)
    job = None if cgroup_parent else read_job(os.environ, found.parents, found.swap_bytes)
    return explain(msgspec.structs.replace(found, slurm=job), mounts, own)


@contextlib.contextmanager
def _trial(parent: Path) -> Iterator[Path]:
    """A group that exists during the trial."""
    directory = parent / f"mnb-probe-{os.getpid()}-{os.urandom(4).hex()}"
    directory.mkdir()
    try:
        _require_domain(directory / "cgroup.type")
        yield directory
    finally:
        directory.rmdir()


def _require_domain(kind: Path) -> None:
    """Raise OSError if no process can enter a new group of v2 ("Threads" in cgroup-v2.rst)."""
    if kind.exists() and kind.read_text().strip() == "domain invalid":
        raise OSError(errno.EOPNOTSUPP, "its group is threaded, so no process can enter a group below it")


def _writable(path: Path) -> None:
    """Raise OSError if the file is missing or cannot be opened for its purpose."""
    os.close(os.open(path, os.O_RDONLY if path.name == "cpuacct.usage" else os.O_RDWR))


def _try_v1(mounts: tuple[CgroupMount, ...], name: str, parent: str, disabled: frozenset[str]) -> Controller:
    if name in disabled:
        return Controller(False, why="disabled in the kernel", fix=f"remove cgroup_disable={name} and reboot")
    mount = find(mounts, name)
    if mount is None:
        return Controller(False, why="not mounted", fix=f"mount -t cgroup -o {name} cgroup /sys/fs/cgroup/{name}")
    directory = Path(mount.point, parent)
    try:
        with _trial(directory) as trial:
            _writable(trial / _FILES_1[name])
            unaccounted = name == "memory" and not (trial / "memory.memsw.limit_in_bytes").exists()
    except OSError as error:
        return _refused(directory, "v1", error)
    if unaccounted and read_topology().swap_bytes:
        why = "the kernel does not account swap, so RAM cannot be limited"
        return Controller(False, "v1", str(directory), why, "swapoff -a, or boot with swapaccount=1")
    return Controller(True, "v1", str(directory))


def _try_unified(mount: CgroupMount, parent: str) -> str:
    directory = Path(mount.point, parent)
    try:
        with _trial(directory):
            return str(directory)
    except OSError:
        return ""  # without it, v1 kills by signals, and there is no pressure to report


def _try_v2(mount: CgroupMount, own: str, parent: str, disabled: frozenset[str]) -> dict[str, Controller]:
    """Try the root of what is mounted (or the requested parent), else the own group if it was delegated to us.

    A scope made for this run precedes both.
    """
    root, scope = Path(mount.point, parent), own_scope(own)
    delegated = None if parent else mount.directory(scope or own)
    choices = [root] if delegated in (None, root) else [delegated] if scope else [root, delegated]
    refused = {}
    for directory in choices:
        try:
            with _trial(directory):
                pass
        except OSError as error:
            refused = {name: _refused(directory, "v2", error) for name in _FILES_2}
        else:
            return {name: _try_v2_controller(Group2(directory), name, disabled) for name in _FILES_2}
    return refused


def _try_v2_controller(parent: Group2, name: str, disabled: frozenset[str]) -> Controller:
    if name in disabled:
        return Controller(False, why="disabled in the kernel", fix=f"remove cgroup_disable={name} and reboot")
    if name not in parent.core.controllers:
        why = f"not delegated to {parent.directory}"
        return Controller(False, "v2", str(parent.directory), why, "delegate it (systemd: Delegate=yes)")
    try:
        new = parent.enable([name])
    except OSError as error:
        return _busy(parent, error)
    try:
        with _trial(parent.directory) as trial:
            _writable(trial / _FILES_2[name])
    except OSError as error:
        return _refused(parent.directory, "v2", error)
    finally:
        parent.disable(new)
    return Controller(True, "v2", str(parent.directory))


def _busy(parent: Group2, error: OSError) -> Controller:
    """Controllers cannot be enabled above processes; fine if all of them are ours, which will be moved."""
    others = foreign(parent)
    if others or parent.core.procs == ():
        pids = ", ".join(map(str, others[:8]))
        why = f"other processes live there (pids {pids})" if others else f"{error.strerror}"
        fix = "start mnb as the container's only process, or pass --cgroup-parent with an empty group"
        return Controller(False, "v2", str(parent.directory), why, fix, error.errno or 0)
    return Controller(True, "v2", str(parent.directory))


def _refused(directory: Path, via: str, error: OSError) -> Controller:
    why = f"cannot make a usable group in {directory} ({error.strerror})"
    return Controller(False, via, str(directory), why, "run as root, or see docs/isolation.md", error.errno or 0)


def _with_quota(found: Capabilities, mounts: tuple[CgroupMount, ...], own: dict[str, str]) -> Capabilities:
    """The same, with the CPU quotas that hold for the tenants: of where we make their groups, or else of our own."""
    mount = find(mounts, "cpu") or find(mounts, "")
    if mount is None:
        return found
    own_cpu = _own_in(mount, own.get("cpu" if mount.version == 1 else ""))
    made = next((parent for parent in found.parents if Path(parent).is_relative_to(mount.point)), None)
    above, usable = made or own_cpu, _usable_cpus(found)
    quota = tightest(cpu_limits(Path(above)), usable) if above else None
    return msgspec.structs.replace(found, above=above, own_cpu=own_cpu, usable=usable, quota=quota)


def _usable_cpus(found: Capabilities) -> int:
    """The number of CPUs that tenants could divide."""
    if not found.ok("cpuset"):
        return len(os.sched_getaffinity(0))
    parent = found.controllers["cpuset"].parent
    if found.mode != "v2":
        return len(Cpuset1(parent).effective_cpus)
    cpuset = Group2(parent).cpuset
    return len(cpuset.cpus_effective) if cpuset.has("cpuset.cpus.effective") else len(os.sched_getaffinity(0))


def _own_directory(mounts: tuple[CgroupMount, ...], own: dict[str, str], mode: Mode) -> str:
    name = "" if mode == "v2" else "memory"
    mount = find(mounts, name)
    return _own_in(mount, own.get(name)) if mount else ""


def _own_in(mount: CgroupMount, group: str | None) -> str:
    """The directory of this process's own group; empty if it cannot be seen."""
    directory = None if group is None else mount.directory(group)
    return str(directory or "")

"""The files of cgroup v1 and v2 that the fence needs as attributes, on cgroupspy's access to files (`Controller`).

Ours add v2. Its `Node`, `Tree`, `get_content`, `failcnt` and `throttle_*` are not used: they adopt groups that exist
already, walk the whole hierarchy, hide errors, stay at 0 after an out-of-memory kill, and name files that do not exist.

This works on any directory, so it is tested on a plain one. Files: Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/{cpusets,memory,pids}.rst of the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cgroupspy.controllers import Controller

from milabench_ng.node.cgroup_files import (
    FlagFile,
    FlatKeyed,
    IdList,
    Limit,
    Limit1,
    NestedKeyed,
    NumberFile,
    Pids,
    Table,
    WordsFile,
)


class GroupFiles(Controller):  # type: ignore[misc]  # cgroupspy has no types
    """The files of one controller in the group of this directory."""

    procs = Pids("cgroup.procs")

    def __init__(self, directory: Path | str) -> None:
        self._directory = directory

    def filepath(self, filename: bytes) -> str:
        """Asked for by cgroupspy."""
        return os.path.join(self._directory, os.fsdecode(filename))

    def has(self, filename: str) -> bool:
        """Whether this kernel shows the file in this group (names and versions: fence design, section 1.6)."""
        return os.path.exists(os.path.join(self._directory, filename))


class Core2(GroupFiles):
    """`cgroup.*` of v2."""

    controllers = WordsFile("cgroup.controllers", readonly=True)
    subtree_control = WordsFile("cgroup.subtree_control")
    events = FlatKeyed("cgroup.events")


class Cpuset2(GroupFiles):
    """`cpuset.*` of v2."""

    cpus = IdList("cpuset.cpus")
    mems = IdList("cpuset.mems")
    cpus_effective = IdList("cpuset.cpus.effective", readonly=True)
    mems_effective = IdList("cpuset.mems.effective", readonly=True)


class Memory2(GroupFiles):
    """`memory.*` of v2."""

    max = Limit("memory.max")
    swap_max = Limit("memory.swap.max")
    oom_group = FlagFile("memory.oom.group")
    current = NumberFile("memory.current", readonly=True)
    peak = NumberFile("memory.peak", readonly=True)
    events = FlatKeyed("memory.events")
    stat = FlatKeyed("memory.stat")


class Pids2(GroupFiles):
    """`pids.*`, the same on v1 and v2."""

    max = Limit("pids.max")
    current = NumberFile("pids.current", readonly=True)
    peak = NumberFile("pids.peak", readonly=True)
    events = FlatKeyed("pids.events")


class Cpu2(GroupFiles):
    """`cpu.stat` of v2, which exists even if the cpu controller is not enabled."""

    stat = FlatKeyed("cpu.stat")


class Io2(GroupFiles):
    """`io.*` of v2."""

    max = NestedKeyed("io.max")
    stat = NestedKeyed("io.stat", readonly=True)


class Pressure2(GroupFiles):
    """Pressure stall information of a v2 group (Documentation/accounting/psi.rst)."""

    cpu = NestedKeyed("cpu.pressure", readonly=True)
    memory = NestedKeyed("memory.pressure", readonly=True)
    io = NestedKeyed("io.pressure", readonly=True)


class Cpuset1(GroupFiles):
    """`cpuset.*` of v1."""

    cpus = IdList("cpuset.cpus")
    mems = IdList("cpuset.mems")
    effective_cpus = IdList("cpuset.effective_cpus", readonly=True)
    effective_mems = IdList("cpuset.effective_mems", readonly=True)


class Memory1(GroupFiles):
    """`memory.*` of v1."""

    limit = Limit1("memory.limit_in_bytes")
    memsw_limit = Limit1("memory.memsw.limit_in_bytes")
    swappiness = NumberFile("memory.swappiness")
    usage = NumberFile("memory.usage_in_bytes", readonly=True)
    max_usage = NumberFile("memory.max_usage_in_bytes", readonly=True)
    oom_control = FlatKeyed("memory.oom_control")
    stat = FlatKeyed("memory.stat")


class Cpuacct1(GroupFiles):
    """`cpuacct.*` of v1."""

    usage = NumberFile("cpuacct.usage", readonly=True)


class Blkio1(GroupFiles):
    """`blkio.throttle.*` of v1."""

    io_service_bytes = Table("blkio.throttle.io_service_bytes", readonly=True)
    read_bps = Table("blkio.throttle.read_bps_device")
    write_bps = Table("blkio.throttle.write_bps_device")


class Group2:
    """A group of the v2 hierarchy with all its controllers (those that are not enabled have no files)."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.core = Core2(directory)
        self.cpuset = Cpuset2(directory)
        self.memory = Memory2(directory)
        self.pids = Pids2(directory)
        self.cpu = Cpu2(directory)
        self.io = Io2(directory)
        self.pressure = Pressure2(directory)

    def enable(self, controllers: Iterable[str]) -> tuple[str, ...]:
        """Give children these controllers; returns those that they did not have before.

        Raises OSError: EBUSY if processes are in this group (and it is not the root), ENOENT if this group does not
        have the controller itself.
        """
        new = tuple(name for name in controllers if name not in self.core.subtree_control)
        for name in new:
            self.core.subtree_control = (f"+{name}",)
        return new

    def disable(self, controllers: Iterable[str]) -> None:
        """Take controllers from the children. Raises OSError (EBUSY) if a child uses one for its own children."""
        for name in controllers:
            self.core.subtree_control = (f"-{name}",)

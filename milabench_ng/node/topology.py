"""Reads the CPUs, memory and topology of a node from sysfs and procfs.

Documentation: Documentation/admin-guide/cputopology.rst and Documentation/ABI/stable/sysfs-devices-node of the kernel.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from milabench_ng.node.cgroup_files import parse_ids


class Cpu(msgspec.Struct, frozen=True):
    """One logical CPU. `core` is the smallest CPU number among its thread siblings, `cache` that of its last level."""

    id: int
    core: int
    package: int
    node: int
    cache: int


class NumaNode(msgspec.Struct, frozen=True):
    """One NUMA node; `cpus` are its online CPUs (none on a node of device memory)."""

    id: int
    cpus: tuple[int, ...]
    memory_bytes: int


class Topology(msgspec.Struct, frozen=True):
    """CPUs and memory of a node. `cpus` are the online ones; `isolated` those that the scheduler does not use."""

    cpus: tuple[Cpu, ...]
    isolated: tuple[int, ...]
    nodes: tuple[NumaNode, ...]
    memory_bytes: int
    hugepages_bytes: int = 0
    swap_bytes: int = 0

    @property
    def online(self) -> tuple[int, ...]:
        return tuple(cpu.id for cpu in self.cpus)


def read_topology(sysfs: Path = Path("/sys"), procfs: Path = Path("/proc")) -> Topology:
    """Read the topology, or with the two paths a copied or artificial one. Raises OSError without `cpu/online`."""
    system = sysfs / "devices/system"
    online = parse_ids(_text(system / "cpu/online"))
    nodes = _nodes(system / "node", online)
    home = {cpu: node.id for node in nodes for cpu in node.cpus}
    memory = meminfo(procfs)
    return Topology(
        cpus=tuple(_cpu(system / f"cpu/cpu{cpu}", cpu, home.get(cpu, 0)) for cpu in online),
        isolated=parse_ids(_text(system / "cpu/isolated", "")),
        nodes=nodes or (NumaNode(0, online, memory["MemTotal"]),),
        memory_bytes=memory["MemTotal"],
        hugepages_bytes=memory.get("HugePages_Total", 0) * memory.get("Hugepagesize", 0),
        swap_bytes=memory.get("SwapTotal", 0),
    )


def _cpu(directory: Path, cpu: int, node: int) -> Cpu:
    siblings = parse_ids(_text(directory / "topology/thread_siblings_list", str(cpu)))
    package = int(_text(directory / "topology/physical_package_id", "0"))
    return Cpu(cpu, min(siblings), package, node, _last_level_cache(directory / "cache", package))


def _last_level_cache(directory: Path, package: int) -> int:
    """The smallest CPU that shares the highest-level cache; the package if caches are not reported."""
    levels = {
        int(_text(index / "level", "0")): parse_ids(_text(index / "shared_cpu_list", ""))
        for index in directory.glob("index*")
    }
    sharers = levels[max(levels)] if levels else ()
    return min(sharers) if sharers else package


def _nodes(directory: Path, online: tuple[int, ...]) -> tuple[NumaNode, ...]:
    ids = parse_ids(_text(directory / "online", ""))
    return tuple(_node(directory / f"node{node}", node, frozenset(online)) for node in ids)


def _node(directory: Path, node: int, online: frozenset[int]) -> NumaNode:
    return NumaNode(
        id=node,
        cpus=tuple(cpu for cpu in parse_ids(_text(directory / "cpulist", "")) if cpu in online),
        memory_bytes=_node_memory_bytes(_text(directory / "meminfo", "")),
    )


def _node_memory_bytes(text: str) -> int:
    """The node's memory, from `Node 0 MemTotal:  16310356 kB` in its own meminfo."""
    for line in text.splitlines():
        words = line.split()
        if "MemTotal:" in words:
            return int(words[words.index("MemTotal:") + 1]) * 1024
    return 0


def meminfo(procfs: Path = Path("/proc")) -> dict[str, int]:
    """The fields of /proc/meminfo: those with a unit (kB) in bytes, counts unchanged."""
    fields = {}
    for line in _text(procfs / "meminfo").splitlines():
        name, number, *unit = line.replace(":", " ").split()
        fields[name] = int(number) * (1024 if unit else 1)
    return fields


def _text(path: Path, default: str | None = None) -> str:
    """The file's text without surrounding blanks; `default` if the kernel does not have the file."""
    if default is not None and not path.exists():
        return default
    return path.read_text().strip()

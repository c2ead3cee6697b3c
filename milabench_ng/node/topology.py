"""Reads the CPUs, memory and topology of a node from sysfs and procfs.

Documentation: Documentation/admin-guide/cputopology.rst and Documentation/ABI/stable/sysfs-devices-node of the kernel.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from milabench_ng.node.cgroup_files import parse_ids
from milabench_ng.node.kernel_files import kernel_table, kernel_text


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
    online = parse_ids((system / "cpu/online").read_text())
    nodes = _nodes(system / "node", online)
    home = {cpu: node.id for node in nodes for cpu in node.cpus}
    memory = kernel_table(procfs / "meminfo")
    return Topology(
        cpus=tuple(_cpu(system / f"cpu/cpu{cpu}", cpu, home.get(cpu, 0)) for cpu in online),
        isolated=parse_ids(kernel_text(system / "cpu/isolated") or ""),
        nodes=nodes or (NumaNode(0, online, memory["MemTotal"]),),
        memory_bytes=memory["MemTotal"],
        hugepages_bytes=memory.get("HugePages_Total", 0) * memory.get("Hugepagesize", 0),
        swap_bytes=memory.get("SwapTotal", 0),
    )


def _cpu(directory: Path, cpu: int, node: int) -> Cpu:
    siblings = parse_ids(kernel_text(directory / "topology/thread_siblings_list") or str(cpu))
    package = int(kernel_text(directory / "topology/physical_package_id") or "0")
    return Cpu(cpu, min(siblings), package, node, _last_level_cache(directory / "cache", package))


def _last_level_cache(directory: Path, package: int) -> int:
    """The smallest CPU that shares the highest-level cache; the package if caches are not reported."""
    levels = {
        int(kernel_text(index / "level") or "0"): parse_ids(kernel_text(index / "shared_cpu_list") or "")
        for index in directory.glob("index*")
    }
    sharers = levels[max(levels)] if levels else ()
    return min(sharers) if sharers else package


def _nodes(directory: Path, online: tuple[int, ...]) -> tuple[NumaNode, ...]:
    ids = parse_ids(kernel_text(directory / "online") or "")
    return tuple(_node(directory / f"node{node}", node, frozenset(online)) for node in ids)


def _node(directory: Path, node: int, online: frozenset[int]) -> NumaNode:
    return NumaNode(
        id=node,
        cpus=tuple(cpu for cpu in parse_ids(kernel_text(directory / "cpulist") or "") if cpu in online),
        memory_bytes=_node_memory_bytes(kernel_text(directory / "meminfo") or ""),
    )


def _node_memory_bytes(text: str) -> int:
    """The node's memory, from `Node 0 MemTotal:  16310356 kB` in its own meminfo."""
    for line in text.splitlines():
        words = line.split()
        if "MemTotal:" in words:
            return int(words[words.index("MemTotal:") + 1]) * 1024
    return 0

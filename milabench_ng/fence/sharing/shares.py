"""Divides a node among tenants: disjoint shares of whole physical cores and of RAM, equal or by weight. Pure.

Same logic as BenchExec's core assignment (Beyer, Löwe, Wendler: "Reliable benchmarking", STTT 2019, section 5), but
nodes that cannot be divided evenly degrade with a note instead of being refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from milabench_ng.fence.sharing.cores import Core, deal, usable_cores
from milabench_ng.model.errors import IsolationError
from milabench_ng.model.units import GIB, format_bytes
from milabench_ng.node.topology import NumaNode, Topology
from milabench_ng.records.isolation import Share

# The kernel rounds limits down to a page; this is a multiple of the page of every architecture (64 KiB on ARM).
PAGE_BYTES = 65536
# Tenants bound to a NUMA node may use at most this fraction of it: the kernel's own pages are there too, and a tenant
# that cannot allocate on its nodes is killed below its limit.
NODE_FILL = 0.95
# Fraction of RAM that a tenant may lose in return for having all of it local.
LOCALITY_PRICE = 0.03


class Placement(msgspec.Struct, frozen=True):
    """A tenant to be placed: its name, and the NUMA node of its device, None if the kernel does not know (-1)."""

    name: str
    node: int | None = None
    weight: float = 1.0
    """What its share is in proportion to: the part of a GPU that it has."""


class Bounds(msgspec.Struct, frozen=True):
    """What the group above leaves to the tenants; None for no bound. `memory_group` sets the limit."""

    cpus: tuple[int, ...] | None = None
    mems: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    memory_group: str = ""


class Policy(msgspec.Struct, frozen=True):
    """The user's choices: RAM to divide (None: the node's), the least that a tenant must get, cores for no tenant."""

    ram_total_bytes: int | None = None
    memory_minimum_bytes: int = 4 * GIB
    reserved_cores: int = 0


class Allocation(msgspec.Struct, frozen=True):
    """The shares by tenant, what is left for the orchestrator, and notes for the reader."""

    shares: dict[str, Share]
    leftover_cpus: tuple[int, ...]
    memory_total_bytes: int
    notes: tuple[str, ...] = ()


class _Memory(msgspec.Struct, frozen=True):
    node_bytes: int
    total_bytes: int
    reserve_bytes: int
    bound: str


def allocate(
    topology: Topology, tenants: Sequence[Placement], bounds: Bounds | None = None, policy: Policy | None = None
) -> Allocation:
    """Allocate shares to all tenants, pairwise disjoint, in proportion to their weights.

    Raises IsolationError if there are fewer usable CPUs than tenants or too little RAM for each.
    """
    bounds, policy = bounds or Bounds(), policy or Policy()
    if not tenants:
        raise IsolationError("isolation: no tenants to divide the node among. Ask for at least one.")
    usable = _usable_cpus(topology, bounds, policy)
    cores, notes = usable_cores(topology, usable, len(tenants))
    weights = [tenant.weight for tenant in tenants]
    hands = deal(cores, [tenant.node for tenant in tenants], weights)
    memory = _memory(topology, bounds, policy)
    homes = [tuple(sorted({core.node for core in hand})) for hand in hands]
    unit, bound = _memory_unit(topology, memory, homes, weights, bounds, policy)
    memory_bytes = {tenant.name: int(unit * tenant.weight) // PAGE_BYTES * PAGE_BYTES for tenant in tenants}
    _check_memory(memory, min(memory_bytes.values()), policy)
    mems = _memory_nodes(topology, bounds)
    shares = {
        tenant.name: Share(
            cpus=_cpus(hand),
            mems=home if bound else mems,
            memory_bytes=memory_bytes[tenant.name],
            memory_nominal_bytes=int(memory.total_bytes / sum(weights) * tenant.weight),
            pids=max(4096, 256 * len(_cpus(hand))),
            cores=len(hand),
            nodes=home,
            local=_local(hand, tenant.node),
            smt_shared=any(core.split for core in hand),
        )
        for tenant, hand, home in zip(tenants, hands, homes, strict=True)
    }
    taken = {cpu for share in shares.values() for cpu in share.cpus}
    return Allocation(
        shares=shares,
        leftover_cpus=tuple(cpu for cpu in topology.online if cpu not in taken),
        memory_total_bytes=memory.total_bytes,
        notes=(*notes, *_memory_notes(topology, policy), *_weight_notes(tenants), *_locality_notes(shares, tenants)),
    )


def disjoint(cpu_sets: Iterable[Iterable[int]]) -> bool:
    """Whether no CPU is in two of the sets. The kernel does not check this: siblings may overlap on v1 and v2."""
    seen: set[int] = set()
    for cpus in map(set, cpu_sets):
        if seen & cpus:
            return False
        seen |= cpus
    return True


def environment(share: Share) -> dict[str, str]:
    """Variables that tell a tenant's programs their share, since `os.cpu_count()` and psutil show the whole node."""
    pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        "MNB_CPUS": ",".join(map(str, share.cpus)),
        "MNB_RAM_BYTES": str(share.memory_bytes),
        "PYTHON_CPU_COUNT": str(len(share.cpus)),
        **dict.fromkeys(pools, str(share.cores)),
    }


def _cpus(hand: Iterable[Core]) -> tuple[int, ...]:
    return tuple(sorted(cpu for core in hand for cpu in core.cpus))


def _usable_cpus(topology: Topology, bounds: Bounds, policy: Policy) -> frozenset[int]:
    """CPUs for tenants: not those of the reserved cores, the first ones, where the kernel has its own work too."""
    allowed = frozenset(topology.online if bounds.cpus is None else bounds.cpus) & frozenset(topology.online)
    usable = allowed - frozenset(topology.isolated)
    core = {cpu.id: cpu.core for cpu in topology.cpus}
    reserved = set(list(dict.fromkeys(core[cpu] for cpu in sorted(usable)))[: policy.reserved_cores])
    return frozenset(cpu for cpu in usable if core[cpu] not in reserved)


def _local(hand: Sequence[Core], node: int | None) -> float | None:
    if node is None:
        return None
    there = sum(len(core.cpus) for core in hand if core.node == node)
    return there / len(_cpus(hand))


def _memory_notes(topology: Topology, policy: Policy) -> Iterable[str]:
    asked = policy.ram_total_bytes
    if asked is not None and asked > topology.memory_bytes:
        found = f"the node shows {format_bytes(topology.memory_bytes)} now"
        yield f"{format_bytes(asked)} of RAM are divided, but {found}. Unless it grows, the limits have no effect"


def _weight_notes(tenants: Sequence[Placement]) -> Iterable[str]:
    weights = [tenant.weight for tenant in tenants]
    if len(set(weights)) > 1:
        parts = ", ".join(f"{tenant.name}: {tenant.weight / sum(weights):.0%}" for tenant in tenants)
        yield f"CPUs and RAM are allocated in proportion to the compute of unequal devices ({parts})"


def _locality_notes(shares: dict[str, Share], tenants: Sequence[Placement]) -> Iterable[str]:
    for tenant in tenants:
        local = shares[tenant.name].local
        if local is not None and local < 1:
            yield f"{tenant.name}: only {local:.0%} of its CPUs are on NUMA node {tenant.node}, where its device is"


def _host_nodes(topology: Topology, bounds: Bounds) -> list[NumaNode]:
    """Nodes with CPUs and memory: a GPU's memory shown as a node (GH200) has no CPUs and is not RAM to divide."""
    mems = None if bounds.mems is None else set(bounds.mems)
    return [node for node in topology.nodes if node.cpus and node.memory_bytes and (mems is None or node.id in mems)]


def _memory_nodes(topology: Topology, bounds: Bounds) -> tuple[int, ...]:
    nodes = _host_nodes(topology, bounds)
    return tuple(node.id for node in nodes) or bounds.mems or tuple(node.id for node in topology.nodes)


def _memory(topology: Topology, bounds: Bounds, policy: Policy) -> _Memory:
    """RAM to divide: MemTotal without unreachable nodes, at most what the groups above allow."""
    hosts = {node.id for node in _host_nodes(topology, bounds)}
    elsewhere = sum(node.memory_bytes for node in topology.nodes if node.id not in hosts) if hosts else 0
    node = policy.ram_total_bytes or topology.memory_bytes - elsewhere
    total, bound = node - topology.hugepages_bytes, ""
    if bounds.memory_bytes is not None and bounds.memory_bytes < total:
        total, bound = bounds.memory_bytes, f" limited to {format_bytes(bounds.memory_bytes)} by {bounds.memory_group}"
    return _Memory(node, total, max(2 * GIB, total // 20), bound)


def _memory_unit(
    topology: Topology,
    memory: _Memory,
    homes: Sequence[tuple[int, ...]],
    weights: Sequence[float],
    bounds: Bounds,
    policy: Policy,
) -> tuple[float, bool]:
    """Bytes for a tenant of weight 1, and whether each tenant may be bound to the nodes of its CPUs."""
    equal = (memory.total_bytes - memory.reserve_bytes) / sum(weights)
    nodes = {node.id: node for node in _host_nodes(topology, bounds)}
    if len(nodes) < 2 or policy.ram_total_bytes or any(len(home) > 1 or home[0] not in nodes for home in homes):
        return equal, False
    there = {node: sum(w for home, w in zip(homes, weights, strict=True) if home == (node,)) for node in nodes}
    fits = min(nodes[node].memory_bytes * NODE_FILL / weight for node, weight in there.items() if weight)
    local = min(equal, fits)
    return (local, True) if local >= equal * (1 - LOCALITY_PRICE) else (equal, False)


def _check_memory(memory: _Memory, memory_bytes: int, policy: Policy) -> None:
    if memory_bytes < policy.memory_minimum_bytes:
        raise IsolationError(
            f"isolation: each tenant would get {max(memory_bytes, 0) / GIB:.1f} GiB of RAM (of "
            f"{format_bytes(memory.node_bytes)}{memory.bound}), and needs at least "
            f"{policy.memory_minimum_bytes / GIB:.0f} GiB. Use fewer tenants, or raise --ram-total if the node has more"
        )

"""Deals physical cores to tenants: whole cores, near the device, caches together. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from milabench_ng.model.errors import IsolationError
from milabench_ng.model.grouping import gathered
from milabench_ng.model.units import counted
from milabench_ng.node.topology import Topology

_ROUNDING = 1e-9
"""What floating point may lack of a whole core."""


class Core(msgspec.Struct, frozen=True, order=True):
    """CPUs dealt as one; `split` if another hardware thread of the physical core goes to another tenant."""

    cache: int
    cpus: tuple[int, ...]
    node: int
    split: bool = False


def usable_cores(topology: Topology, usable: frozenset[int], tenants: int) -> tuple[list[Core], tuple[str, ...]]:
    """The cores made of usable CPUs, and notes.

    A partly usable core is left to the orchestrator, unless the others do not suffice. With fewer cores than tenants,
    hardware threads are dealt singly. Raises IsolationError with fewer CPUs than tenants.
    """
    siblings = gathered((cpu.core, cpu.id) for cpu in topology.cpus)
    place = {cpu.id: cpu for cpu in topology.cpus}
    whole = [
        Core(place[cpus[0]].cache, tuple(cpus), place[cpus[0]].node)
        for cpus in siblings.values()
        if usable.issuperset(cpus)
    ]
    if _enough(whole, tenants):
        return sorted(whole), ()
    if len(usable) < tenants:
        kept = (
            f" The node has {len(place)} CPUs: --reserve-cores of mnb jobs, an affinity mask (taskset), a cpuset or "
            "isolcpus withholds the others."
        )
        others = kept if len(usable) < len(place) else ""
        raise IsolationError(
            f"isolation: {counted(len(usable), 'usable CPU')} for {counted(tenants, 'tenant')}, but each needs "
            f"one. Use fewer tenants (--tenants, --slots-per-device).{others}"
        )
    parts = [
        Core(place[cpus[0]].cache, own, place[own[0]].node, split=True)
        for cpus in siblings.values()
        if (own := tuple(cpu for cpu in cpus if cpu in usable)) and len(own) < len(cpus)
    ]
    if parts and _enough(whole + parts, tenants):
        note = f"{len(parts)} physical cores are only partly usable and are shared with other processes (smt_shared)."
        return sorted(whole + parts), (f"warning: {note}",)
    threads = [Core(place[cpu].cache, (cpu,), place[cpu].node, split=True) for cpu in sorted(usable)]
    note = f"{len(whole) + len(parts)} physical cores for {tenants} tenants: SMT siblings are split between tenants"
    return sorted(threads), (f"warning: {note} (smt_shared).",)


def _enough(cores: Sequence[Core], tenants: int) -> bool:
    """Whether each tenant can get at least one core of some width, the same for all."""
    return any(count >= tenants for count in Counter(len(core.cpus) for core in cores).values())


def deal(cores: Sequence[Core], nodes: Sequence[int | None], weights: Sequence[float]) -> list[list[Core]]:
    """Deal each tenant cores in proportion to its weight; `nodes` is the NUMA node that each wants (None: any).

    Cores of different widths (hybrid processors) are dealt by width, so that equal tenants get equal numbers of each.
    """
    hands: list[list[Core]] = [[] for _ in nodes]
    homes = _homes(cores, nodes)
    for width in sorted({len(core.cpus) for core in cores}):
        pool = [core for core in cores if len(core.cpus) == width]
        _deal_width(pool, homes, portions(len(pool), weights), hands)
    return hands


def portions(count: int, weights: Sequence[float]) -> list[int]:
    """``count`` things in proportion to ``weights``, rounded down; at least one each, or none if that is too many."""
    if count < len(weights):
        return [0] * len(weights)
    total = sum(weights)
    each = [max(1, int(count * weight / total + _ROUNDING)) for weight in weights]
    while sum(each) > count:
        each[each.index(max(each))] -= 1
    return each


def _homes(cores: Sequence[Core], wanted: Sequence[int | None]) -> list[int]:
    """The node of each tenant; one that wants none gets the node with the most cores left per tenant."""
    size = Counter(core.node for core in cores)
    taken = Counter(node for node in wanted if node is not None and node in size)
    homes = []
    for node in wanted:
        if node is None or node not in size:
            node = max(sorted(size), key=lambda n: size[n] / (taken[n] + 1))
            taken[node] += 1
        homes.append(node)
    return homes


def _deal_width(pool: Sequence[Core], homes: Sequence[int], each: Sequence[int], hands: list[list[Core]]) -> None:
    """Deal first from each tenant's own node, then what is missing from the node with the most left."""
    left: dict[int, list[Core]] = defaultdict(list)
    for core in sorted(pool):
        left[core.node].append(core)
    want = [len(hand) + more for hand, more in zip(hands, each, strict=True)]
    for tenant, home in enumerate(homes):
        _take(left[home], want[tenant], hands[tenant])
    for tenant in range(len(hands)):
        while len(hands[tenant]) < want[tenant]:
            _take(max(left.values(), key=len), want[tenant], hands[tenant])


def _take(stock: list[Core], want: int, hand: list[Core]) -> None:
    count = max(0, want - len(hand))
    hand += stock[:count]
    del stock[:count]

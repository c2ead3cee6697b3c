"""The layout: which slots there are, and what each has."""

from __future__ import annotations

from milabench_ng.fence.sharing.layout import Slot, lay_out, one_per_device, placements
from milabench_ng.fence.sharing.shares import Placement, Policy, allocate, disjoint
from milabench_ng.node.topology import Cpu, NumaNode, Topology
from milabench_ng.plan import Device
from milabench_ng.units import GIB

GPUS = [Device(index=2, kind="gpu", uuid="GPU-2", numa_node=0), Device(index=5, kind="gpu", uuid="GPU-5")]


def node(cores: int) -> Topology:
    """One socket without hardware threads."""
    cpus = tuple(Cpu(id=index, core=index, package=0, node=0, cache=0) for index in range(cores))
    numa = NumaNode(id=0, cpus=tuple(range(cores)), memory_bytes=64 * GIB)
    return Topology(cpus=cpus, isolated=(), nodes=(numa,), memory_bytes=64 * GIB)


def test_normally_every_device_has_one_slot_which_is_named_after_it() -> None:
    slots = one_per_device(GPUS)
    assert slots == {"2": GPUS[0], "5": GPUS[1]}
    assert placements(slots) == [Placement("2", 0), Placement("5", None)]


def test_tenants_of_one_device_have_shares_of_their_own() -> None:
    slots = {"2a": GPUS[0], "2b": GPUS[0], "5": GPUS[1]}
    shares = allocate(node(6), placements(slots), policy=Policy(memory_reserve_bytes=GIB)).shares
    layout = lay_out(slots, shares)
    assert layout == tuple(Slot(slot, device, shares[slot]) for slot, device in slots.items())
    assert [slot.device.index for slot in layout] == [2, 2, 5]
    assert {slot.share.cores for slot in layout} == {2}
    assert disjoint(slot.share.cpus for slot in layout)
    assert sum(slot.share.memory_bytes for slot in layout) <= 63 * GIB

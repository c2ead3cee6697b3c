"""The layout: which slots there are, and what each has."""

from __future__ import annotations

import msgspec
import pytest

from milabench_ng.fence.sharing.cores import portions
from milabench_ng.fence.sharing.layout import lay_out, placements
from milabench_ng.fence.sharing.shares import Placement, allocate, disjoint
from milabench_ng.model.plan import Device, slots_of
from milabench_ng.model.units import GIB
from milabench_ng.node.topology import Cpu, NumaNode, Topology

GPUS = [Device(index=2, kind="gpu", uuid="GPU-2", numa_node=0), Device(index=5, kind="gpu", uuid="GPU-5")]


def node(cores: int) -> Topology:
    """One socket without hardware threads."""
    cpus = tuple(Cpu(id=index, core=index, package=0, node=0, cache=0) for index in range(cores))
    numa = NumaNode(id=0, cpus=tuple(range(cores)), memory_bytes=64 * GIB)
    return Topology(cpus=cpus, isolated=(), nodes=(numa,), memory_bytes=64 * GIB)


def test_normally_every_device_has_one_slot_which_is_named_after_it() -> None:
    slots = slots_of(GPUS, 1)
    assert slots == {"2": GPUS[0], "5": GPUS[1]}
    assert placements(slots) == [Placement("2", 0), Placement("5", None)]


def test_tenants_of_one_device_have_equal_shares_of_their_own() -> None:
    slots = slots_of(GPUS, 2)
    assert list(slots) == ["2a", "2b", "5a", "5b"]
    shares = allocate(node(8), placements(slots)).shares
    layout = lay_out(slots, shares)
    assert [(slot.id, slot.device) for slot in layout] == list(slots.items())
    assert [slot.share.device_part for slot in layout] == [0.5] * 4
    assert {slot.share.cores for slot in layout} == {2}
    assert disjoint(slot.share.cpus for slot in layout)


def test_mig_instances_have_shares_in_proportion_to_their_compute() -> None:
    """Of 14 cores, 3/7 and 4/7 of a GPU get 6 and 8; two tenants of each get half of that."""
    parts = [
        Device(index=index, kind="mig", uuid=f"MIG-{index}", part=slices / 7) for index, slices in enumerate((3, 4))
    ]
    whole = slots_of(parts, 1)
    allocation = allocate(node(14), placements(whole))
    assert [share.cores for share in allocation.shares.values()] == [6, 8]
    small, large = (share.memory_bytes for share in allocation.shares.values())
    assert small / large == pytest.approx(3 / 4, rel=1e-4)
    assert allocation.notes == (
        "CPUs and RAM are allocated in proportion to the compute of unequal devices (0: 43%, 1: 57%)",
    )
    assert {slot.share.device_part for slot in lay_out(whole, allocation.shares)} == {msgspec.UNSET}
    halves = allocate(node(14), placements(slots_of(parts, 2))).shares
    assert {slot: share.cores for slot, share in halves.items()} == {"0a": 3, "0b": 3, "1a": 4, "1b": 4}


def test_every_tenant_has_a_core_however_small_its_part() -> None:
    assert portions(4, [1 / 7, 2 / 7, 4 / 7]) == [1, 1, 2]
    assert portions(3, [1 / 7, 2 / 7, 4 / 7]) == [1, 1, 1]
    assert portions(2, [1.0, 1.0, 1.0]) == [0, 0, 0]
    assert portions(7, [1.0, 1.0]) == [3, 3], "equal tenants get equal numbers"

"""The layout of a node: its slots, each with a device and a share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from milabench_ng.fence.sharing.shares import Placement
from milabench_ng.plan import Device, SlotId
from milabench_ng.records.isolation import Share


class Slot(msgspec.Struct, frozen=True):
    """A place for one tenant: a device, or a part of its time, and a fenced share."""

    id: SlotId
    device: Device
    share: Share


Layout = tuple[Slot, ...]


def one_per_device(devices: Sequence[Device]) -> dict[str, Device]:
    """The device of each slot, with one slot per device, named after its index."""
    return {str(device.index): device for device in devices}


def placements(devices: Mapping[str, Device]) -> list[Placement]:
    """The placements of the slots' tenants; ``devices`` are by slot."""
    return [Placement(slot, device.numa_node) for slot, device in devices.items()]


def lay_out(devices: Mapping[str, Device], shares: Mapping[str, Share]) -> Layout:
    """The slots in the order of ``devices``, each with its share; both are by slot."""
    return tuple(Slot(slot, device, shares[slot]) for slot, device in devices.items())

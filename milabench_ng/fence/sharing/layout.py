"""The layout of a node: its slots, each with a device and a share. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from milabench_ng.fence.sharing.shares import Placement
from milabench_ng.model.plan import Device, SlotId
from milabench_ng.records.isolation import Share


class Slot(msgspec.Struct, frozen=True):
    """A place for one tenant: a device, or a part of its time, and a fenced share."""

    id: SlotId
    device: Device
    share: Share


Layout = tuple[Slot, ...]


def placements(devices: Mapping[str, Device]) -> list[Placement]:
    """The placements of the slots' tenants, by the part of a GPU that each has; ``devices`` are by slot."""
    tenants = Counter(device.index for device in devices.values())
    return [
        Placement(slot, device.numa_node, device.known_part / tenants[device.index]) for slot, device in devices.items()
    ]


def lay_out(devices: Mapping[str, Device], shares: Mapping[str, Share]) -> Layout:
    """The slots in the order of ``devices``, each with its share; both are by slot.

    Tenants of one device get equal parts of its memory.
    """
    tenants = Counter(device.index for device in devices.values())
    return tuple(Slot(slot, device, _part(shares[slot], tenants[device.index])) for slot, device in devices.items())


def _part(share: Share, tenants: int) -> Share:
    return share if tenants == 1 else msgspec.structs.replace(share, device_part=1 / tenants)

"""A condition of one launch, and what is looked at for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from milabench_ng.analysis.launch.steadiness import Shape
from milabench_ng.model.bounds import Spread
from milabench_ng.model.grouping import grouped
from milabench_ng.model.limits import LIMITS, ConditionKind
from milabench_ng.model.units import figure
from milabench_ng.node.gpu_conditions import GpuState
from milabench_ng.records.marks import Mark
from milabench_ng.records.record import Mnb
from milabench_ng.telemetry.messages import telemetry_key

_MAXIMA: tuple[ConditionKind, ...] = ("PCIe link", "NVLink down")
"""Their limit is what there should be."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, within its limit or beyond."""

    kind: ConditionKind
    slot: str | None = None
    """The slot that it concerns; None for the whole node."""
    what: str = ""
    """Which of several: a reason, a part of a link, a number."""
    value: float | None = None
    """In the unit of its kind; None for one that has no figure, and is beyond any limit."""
    limit: float | None = None
    """What the value should not exceed, or for links that are down, not fall below; None for information only."""
    beyond: bool

    @property
    def text(self) -> str:
        """In words."""
        told = LIMITS[self.kind].told.format(what=self.what, value=self._told(self.value), limit=self._told(self.limit))
        within = "" if LIMITS[self.kind].most is None or self.limit is None else f", limit {self._told(self.limit)}"
        return f"{told}{within}" if self.slot is None else f"device {self.slot}: {told}{within}"

    def _told(self, number: float | None) -> str:
        return "unknown" if number is None else figure(number, LIMITS[self.kind].unit)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One launch: its record, and what follows from it."""

    mnb: Mnb
    marks: Sequence[Mark]
    shapes: Sequence[Shape]
    boards: Mapping[str, str]
    """UUID of the physical GPU by that of a device, where they differ."""
    peers: Sequence[Mnb] = ()
    """The launches of the same test in the same launch group, with itself."""

    @property
    def gpus(self) -> dict[str, str]:
        """UUID of the devices by slot, without CPUs."""
        pairs = zip(self.mnb.launch.slot_ids, self.mnb.devices, strict=False)
        return {slot: device.uuid for slot, device in pairs if device.uuid is not None}

    def sampled(self, uuid: str) -> Mapping[str, Spread]:
        """The telemetry of a device."""
        return self.mnb.telemetry.get(telemetry_key("gpu", uuid), {})

    def states(self, uuid: str) -> tuple[GpuState, GpuState] | None:
        """The state of the GPU behind a device at both edges."""
        edges = (self.mnb.conditions.get("before"), self.mnb.conditions.get("after"))
        found = [edge.gpus.get(self.boards.get(uuid, uuid)) for edge in edges if edge is not None]
        first, last = found if len(found) == len(edges) else (None, None)
        return None if first is None or last is None else (first, last)

    @property
    def between_s(self) -> float:
        """Time between the edges."""
        before, after = self.mnb.conditions.get("before"), self.mnb.conditions.get("after")
        return after.time_s - before.time_s if before is not None and after is not None else 0.0


def held(kind: ConditionKind, value: float, slot: str | None = None, what: str = "") -> Condition:
    """A value against the limit of its kind."""
    most = LIMITS[kind].most
    beyond = most is not None and value > most
    return Condition(kind=kind, slot=slot, what=what, value=value, limit=most, beyond=beyond)


def risen(before: float | None, after: float | None) -> float | None:
    """By how much a counter rose; None if it was not read twice, or began again."""
    return after - before if before is not None and after is not None and after >= before else None


def worst(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Of each kind and subject the one that is farthest beyond its limit, or nearest to it."""
    same = grouped(conditions, lambda one: (one.kind, one.what if one.beyond else ""))
    found = {key: max(each, key=_distance) for key, each in same.items()}
    beyond = {one.kind for one in found.values() if one.beyond}
    return tuple(one for one in found.values() if one.beyond or one.kind not in beyond)


def _distance(one: Condition) -> tuple[bool, float]:
    if one.value is None:
        return one.beyond, math.inf
    above = one.value - (one.limit or 0.0)
    return one.beyond, -above if one.kind in _MAXIMA else above

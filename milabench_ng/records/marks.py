"""Marks: reasons why a result is not comparable, typed so that equal marks are counted together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from milabench_ng.model.grouping import grouped
from milabench_ng.model.units import figure

MarkKind = Literal[
    "resumed",
    "not isolated",
    "partly isolated",
    "window shortened",
    "options overridden",
    "data scale",
    "order",
    "company",
    "devices left out",
    "shared devices",
    "automatic batch size",
    "I/O share overridden",
    "caches divided",
    "classic data",
    "data not read again",
    "files in memory",
    "I/O share held by readers",
    "CPUs shared with another run",
    "foreign CPU load",
    "GPU used by others",
    "CPU quota",
    "held back by a CPU quota",
    "outlived its fence",
    "unequal page cache",
    "neighbours lost",
    "siblings shared",
    "scheduling",
    "orchestrator paused",
    "clock set",
    "telemetry missing",
    "precision",
    "throttled",
    "steps skipped",
    "prefetched items",
    "loss outside the reference",
    "gradient norm outside the reference",
    "parameters outside the reference",
    "not recorded",
    "nothing learned",
]
Unit = Literal["", "s", "%"]

_FORMS: dict[MarkKind, tuple[str, Unit]] = {
    "resumed": ("resumed with another {what}", ""),
    "not isolated": ("NOT ISOLATED: isolation {what}", ""),
    "partly isolated": ("isolation partial", ""),
    "window shortened": ("averaging window shortened to {value}", "s"),
    "options overridden": ("options overridden: {what}", ""),
    "data scale": ("dataset scale {value} instead of {limit}", ""),
    "order": ("ran in {what} order, all repeats of a test in a row", ""),
    "company": ("ran next to {what}, which the profile does not specify", ""),
    "devices left out": ("only {value} of the node's {limit} devices were used", ""),
    "shared devices": ("{value} tenants shared each {what}", ""),
    "automatic batch size": ("batch size found by trial: {what}", ""),
    "I/O share overridden": ("I/O limit overridden", ""),
    "caches divided": ("last-level caches and memory bandwidth divided among the tenants", ""),
    "classic data": ("data of milabench 2020: {what}", ""),
    "data not read again": ("{what} was not checked against its checksum (--skip-data-check)", ""),
    "files in memory": ("output was written to {what} (RAM), so no disk was measured", ""),
    "I/O share held by readers": ("I/O limit enforced by the dataset's readers, not by the kernel", ""),
    "CPUs shared with another run": ("{what} also used by another mnb run", ""),
    "foreign CPU load": ("other programs used {value} of the busy CPU time (limit {limit})", "%"),
    "GPU used by others": ("other processes were on the GPU before the launch group: {what}", ""),
    "CPU quota": ("{what} has a quota of {value} CPUs, but the tenants have {limit}", ""),
    "held back by a CPU quota": (
        "throttled by the CPU quota of {what} or above for {value} of the time (limit {limit})",
        "%",
    ),
    "outlived its fence": ("a process of the launch group outlived its isolation: {what}", ""),
    "unequal page cache": ("page caches of the tenants differ by {value} of an allocation (limit {limit})", "%"),
    "neighbours lost": ("{value} of {what} neighbors lost during the launch group", ""),
    "siblings shared": ("SMT siblings shared between tenants", ""),
    "scheduling": ("ran with {what}", ""),
    "orchestrator paused": ("mnb was paused for {value} (limit {limit})", "s"),
    "clock set": ("the node's clock was changed by {value} during the launch group (limit {limit})", "s"),
    "telemetry missing": ("no telemetry: {what}", ""),
    "precision": ("precision {what}", ""),
    "throttled": ("GPU clocks throttled ({what}) for {value} of the time (limit {limit})", "%"),
    "steps skipped": ("the loss scale skipped {value} of the steps after warm-up (limit {limit})", "%"),
    "prefetched items": ("{value} of the window's items were prefetched before it (limit {limit})", "%"),
    "loss outside the reference": ("outside the reference: loss {value} at {what}", ""),
    "gradient norm outside the reference": ("outside the reference: gradient norm {value} at {what}", ""),
    "parameters outside the reference": (
        "outside the reference: parameters differ from those that this software produces",
        "",
    ),
    "not recorded": ("the record has no {what}", ""),
    "nothing learned": ("the model did not learn: the {what} is {value}", ""),
}
"""The sentence of each kind, and the unit of its value and limit: ``%`` for a share, 0 to 1."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a result is not comparable."""

    kind: MarkKind
    device: str | None = None
    """The slot that it concerns, named after its device; None for the whole launch."""
    what: str = ""
    """What it is about: options, a reason, a dataset."""
    value: float | None = None
    """Value in the unit of its kind; None if the kind has none, or if it was not finite."""
    limit: float | None = None
    """The limit that ``value`` exceeds."""

    @property
    def sentence(self) -> str:
        """The mark in words, without the device."""
        return _FORMS[self.kind][0].format(
            what=self.what, value=self._figure(self.value), limit=self._figure(self.limit)
        )

    @property
    def text(self) -> str:
        """In words."""
        return self.sentence if self.device is None else f"device {self.device}: {self.sentence}"

    def _figure(self, number: float | None) -> str:
        """A number in the unit of this kind."""
        return "not finite" if number is None else figure(number, _FORMS[self.kind][1])


def worst(marks: Iterable[Mark]) -> Mark:
    """The mark whose value is farthest beyond its limit, the first of equals; needs at least one."""
    return max(marks, key=lambda mark: math.inf if mark.value is None else abs(mark.value - (mark.limit or 0.0)))


def merged(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """The worst mark for each kind, subject and device."""
    same = grouped(marks, lambda mark: (mark.kind, mark.what, mark.device))
    return tuple(map(worst, same.values()))

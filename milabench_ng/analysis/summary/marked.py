"""The marks of a run, counted: one line per kind and subject. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.grouping import grouped
from milabench_ng.model.units import counted
from milabench_ng.records.marks import Mark, MarkKind, worst


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of one kind and subject, over all tests and devices."""

    kind: MarkKind
    what: str
    tests: tuple[str, ...]
    devices: tuple[str, ...]
    """Indices of the affected devices; empty for marks on whole launches."""
    worst: float | None
    """The value farthest beyond the limit, in the unit of the kind."""
    limit: float | None
    text: str
    """The worst mark in words."""

    def counted(self, of: int) -> str:
        """The mark in words, with how many of the report's ``of`` tests have it, and on which devices."""
        named = f"; device{'' if len(self.devices) == 1 else 's'} {', '.join(self.devices)}" if self.devices else ""
        most = "" if self.worst is None else "at worst; "
        return f"{self.text} ({most}{len(self.tests)} of {counted(of, 'test')}{named})"


def count_marks(rows: Mapping[str, TestSummary]) -> tuple[Marked, ...]:
    """Count the marks of ``rows`` (by test), in order of first occurrence."""
    pairs = [(test, mark) for test, row in rows.items() for mark in row.marks]
    same = grouped(pairs, lambda pair: (pair[1].kind, pair[1].what))
    return tuple(
        _counted(dict.fromkeys(test for test, _ in each), [mark for _, mark in each]) for each in same.values()
    )


def _counted(tests: Iterable[str], marks: list[Mark]) -> Marked:
    top = worst(marks)
    devices = {mark.device for mark in marks if mark.device is not None}
    return Marked(
        kind=top.kind,
        what=top.what,
        tests=tuple(tests),
        devices=tuple(sorted(devices, key=lambda index: (len(index), index))),
        worst=top.value,
        limit=top.limit,
        text=top.sentence,
    )

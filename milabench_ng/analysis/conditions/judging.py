"""All conditions of a launch: what its sources tell, and what its marks and the course of its rate tell already."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.conditions.condition import Condition, Seen
from milabench_ng.analysis.conditions.gpu_clocks import clocks
from milabench_ng.analysis.conditions.gpu_links import links
from milabench_ng.analysis.conditions.gpu_memory import health
from milabench_ng.analysis.conditions.node_load import host, shares
from milabench_ng.model.limits import LIMITS

_SOURCES = (clocks, health, links, host, shares)


def judged(seen: Seen) -> tuple[Condition, ...]:
    """The conditions that are known of a launch, within their limits and beyond."""
    return (*_of_marks(seen), *_of_course(seen), *(one for source in _SOURCES for one in source(seen)))


def _of_marks(seen: Seen) -> Iterator[Condition]:
    """What makes a launch not comparable is beyond its limit."""
    for mark in seen.marks:
        if mark.kind in LIMITS:
            yield Condition(
                kind=mark.kind,
                slot=mark.device,
                what=mark.what,
                value=len(mark.what.split(",")) if mark.value is None else mark.value,
                limit=LIMITS[mark.kind].most,
                beyond=True,
            )


def _of_course(seen: Seen) -> Iterator[Condition]:
    for shape in seen.shapes:
        if shape.kind == "stall":
            yield Condition(kind="stall", what=shape.detail, beyond=True)

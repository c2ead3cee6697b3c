"""Judges the conditions of every launch of a folder, beside those that ran the same at the same time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.analysis.conditions.condition import Condition, Seen
from milabench_ng.analysis.conditions.gpu_clocks import clocks
from milabench_ng.analysis.conditions.gpu_links import links
from milabench_ng.analysis.conditions.gpu_memory import health
from milabench_ng.analysis.conditions.node_load import host, shares
from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.model.grouping import grouped
from milabench_ng.model.limits import LIMITS
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.record import Mnb

_SOURCES = (clocks, health, links, host, shares)


def with_conditions(results: Sequence[LaunchResult], manifests: Sequence[Manifest]) -> tuple[LaunchResult, ...]:
    boards = {gpu.uuid: gpu.board for manifest in manifests for gpu in manifest.inventory.gpus}
    good = (one.mnb for one in results if one.mnb is not None and one.cause is None)
    peers = grouped(good, _at)
    return tuple(
        one
        if one.mnb is None
        else msgspec.structs.replace(
            one,
            conditions=_judged(
                Seen(mnb=one.mnb, marks=one.marks, shapes=one.shapes, boards=boards, peers=peers.get(_at(one.mnb), []))
            ),
        )
        for one in results
    )


def _at(mnb: Mnb) -> tuple[str, int, str]:
    """Its launch group and test."""
    return mnb.run_id, mnb.batch, mnb.label


def _judged(seen: Seen) -> tuple[Condition, ...]:
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

"""Judges the conditions of every launch of a folder, beside those that ran the same at the same time. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from milabench_ng.analysis.conditions.condition import Seen
from milabench_ng.analysis.conditions.judging import judged
from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.record import Mnb


def with_conditions(results: Sequence[LaunchResult], manifests: Sequence[Manifest]) -> tuple[LaunchResult, ...]:
    """The results, with the conditions under which they ran."""
    boards = {gpu.uuid: gpu.board for manifest in manifests for gpu in manifest.inventory.gpus}
    peers: dict[tuple[str, int, str], list[Mnb]] = defaultdict(list)
    for one in results:
        if one.mnb is not None and one.cause is None:
            peers[_at(one.mnb)].append(one.mnb)
    return tuple(
        one
        if one.mnb is None
        else msgspec.structs.replace(
            one,
            conditions=judged(
                Seen(mnb=one.mnb, marks=one.marks, shapes=one.shapes, boards=boards, peers=peers[_at(one.mnb)])
            ),
        )
        for one in results
    )


def _at(mnb: Mnb) -> tuple[str, int, str]:
    """Its launch group and test."""
    return mnb.run_id, mnb.batch, mnb.label

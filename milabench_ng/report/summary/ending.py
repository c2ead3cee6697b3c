"""Whether a run was over when its folder was read, and what is left of it. Pure."""

from __future__ import annotations

from itertools import pairwise

from milabench_ng.records.ledger import Finished, Session, ended_by_itself
from milabench_ng.report.summary.provenance import Folder
from milabench_ng.stats import median


def interrupted(folder: Folder) -> bool:
    """Whether the ledger knows that launches are left; a record that is gone was not left out."""
    edges = [event for event in folder.events if isinstance(event, Session | Finished)]
    if folder.going_on or not edges:
        return False
    return not isinstance(edges[-1], Finished) or edges[-1].missing > 0


def between_sessions(folder: Folder) -> bool:
    """Whether a run of several sessions ended one of them by itself, and has more to come."""
    several = any(manifest.request.sessions > 1 for manifest in folder.manifests)
    return several and interrupted(folder) and ended_by_itself(folder.events)


def left_s(folder: Folder) -> float | None:
    """What the batches that are left take, if they start as far apart as most so far; None for fewer than two."""
    starts = sorted({result.started_utc for result in folder.results if result.started_utc is not None})
    if len(starts) < 2:
        return None
    each_s = median([(late - early).total_seconds() for early, late in pairwise(starts)])
    return each_s * max(0, sum(len(manifest.plan.batches) for manifest in folder.manifests) - len(starts))

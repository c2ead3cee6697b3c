"""Whether a run was over when its folder was read, and what is left of it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import msgspec

from milabench_ng.analysis.summary.provenance import ReducedFolder
from milabench_ng.analysis.summary.summary import LEFT, Summary, TestSummary
from milabench_ng.model.plan import session_of
from milabench_ng.model.stats import median
from milabench_ng.records.ledger import NOT_TRIED, Finished, Session, ended_by_itself
from milabench_ng.records.manifest import Manifest


def interrupted(folder: ReducedFolder) -> bool:
    """Whether the ledger knows that launches are left; a record that is gone was not left out."""
    edges = [event for event in folder.events if isinstance(event, Session | Finished)]
    if folder.going_on or not edges:
        return False
    return not isinstance(edges[-1], Finished) or edges[-1].missing > 0


def between_sessions(folder: ReducedFolder) -> bool:
    """Whether a run of several sessions ended one of them by itself, and has more to come."""
    several = any(manifest.sessions > 1 for manifest in folder.manifests)
    return several and interrupted(folder) and ended_by_itself(folder.events)


def left_s(folder: ReducedFolder) -> float | None:
    """What the batches that are left take, if they start as far apart as most so far; None for fewer than two.

    So does what lies between the sessions of a run. A batch that is to be measured again is left.
    """
    starts = sorted({result.started_utc for result in folder.results if result.started_utc is not None})
    if len(starts) < 2:
        return None
    each_s = median([(late - early).total_seconds() for early, late in pairwise(starts)])
    done = {(one.run_id, one.label, one.job_id) for one in folder.results if one.cause not in NOT_TRIED}
    return sum(_left_s(manifest, done, each_s) for manifest in folder.manifests)


def _left_s(manifest: Manifest, done: Collection[tuple[str | None, str, str]], each_s: float) -> float:
    """What is left of one run."""
    plan = manifest.plan
    left = [
        batch
        for batch in plan.batches
        if any(one.measured and (manifest.run_id, one.label, one.job_id) not in done for one in batch.launches)
    ]
    sessions = {session_of(batch.launches[0].run, plan.repeat, manifest.sessions) for batch in left}
    return each_s * len(left) + manifest.session_gap_s * max(0, len(sessions) - 1)


def left_pending(summary: Summary) -> Summary:
    """``summary`` as a report tells it: what an interrupted run has left is pending, not failed.

    Rules, acceptance and baselines judge the summary as it was, in which it failed.
    """
    if not summary.interrupted:
        return summary
    return msgspec.structs.replace(summary, tests={label: _left_pending(row) for label, row in summary.tests.items()})


def _left_pending(row: TestSummary) -> TestSummary:
    """A launch that has no result is pending with all its attempts; beside a result, each attempt counts."""
    jobs = {failed.job_id for failed in row.failed}
    left = {job for job in jobs if job not in row.launches and _says_nothing(row, job)}
    stay = tuple(failed for failed in row.failed if failed.job_id not in left)
    gone = len(row.failed) - len(stay)
    return msgspec.structs.replace(
        row,
        n=row.n - gone,
        failures=row.failures - gone,
        failed=stay,
        missing=sum(failed.cause == "missing" for failed in stay),
        pending=row.pending + len(left),
    )


def _says_nothing(row: TestSummary, job: str) -> bool:
    """Whether no attempt of a launch failed by itself, nor has lost a record that the ledger names."""
    attempts = [failed for failed in row.failed if failed.job_id == job]
    return all(failed.cause in LEFT and not (failed.cause == "missing" and failed.file) for failed in attempts)

"""What to do after reading a report: one rule, for the first screen and for the end of a run."""

from __future__ import annotations

from pathlib import Path

from milabench_ng.analysis.scoring.failure_rate import FAILURE_LIMIT
from milabench_ng.analysis.statistics.intervals import RANKED_FROM
from milabench_ng.model.plain import quoted
from milabench_ng.model.shipped import names
from milabench_ng.model.units import counted
from milabench_ng.records.names import RECORD_NAME
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import comparable_baseline

TENDER = "jobs standard --repeat 5 --sessions 3 --session-gap 6h"
"""What the shipped rules ask of a bid."""
_TRIALS = ("smoke", "quick")
"""Suites that show that a node works, and rank nothing."""
_NO_FOLDERS = (".json", ".gz", ".tar")
"""How the names of summaries and bundles end, which no run goes on in."""


def next_step(report: Report) -> str:
    """What to do next: the purpose, then the command, which may fill lines; empty if nothing is left to do."""
    source, suite = quoted(report.source), report.summary.suite
    room = "free some space; then, " if report.disk_full else ""
    scores = [part.score for part in report.scored if part.score and part.score.per_device is not None]
    missing = report.not_tried or sum(row.missing for row in report.summary.tests.values())
    repeats = min((score.interval.n if score.interval else 1 for score in scores), default=1)
    if report.summary.going_on:
        return f"once the run has ended: mnb report {source}"
    if report.waiting:
        return (
            f"{room}to bring back the results of {counted(len(report.waiting.launches), 'launch')}: mnb resume {source}"
        )
    there = report.folder
    if there and (there.gone or (missing and (there.altered or not there.ledger.entries))):
        return f"put back what was changed or is gone, or start a new run; to list it: mnb verify {source}"
    if missing and not report.source.endswith(_NO_FOLDERS):
        if report.summary.between_sessions:
            later = f"{counted(missing, 'launch')} of later sessions"
            return f"{room}for {later}, if it does not continue by itself: mnb resume {source}"
        return f"{room}for {counted(missing, 'launch')} not run yet: mnb resume {source}"
    if report.not_tried:
        left = counted(report.not_tried, "launch")
        return f"for {left} not run yet, on the node: mnb resume FOLDER, then mnb bundle FOLDER"
    none_ran = not any(row.train for row in report.summary.tests.values())
    if report.failed and (none_ran or report.failure_rate.exceeds(FAILURE_LIMIT)):
        label, first = report.failed[0]
        where = f' (traceback: "error" in {first.file})' if first.cause == "exception" and first.file else ""
        why = f"{first.cause}: {first.detail}".removesuffix(": ")
        return f"find out why {label} J{first.job_id} failed: {why}{where}"
    ranked_later = suite in _TRIALS or (bool(scores) and repeats < RANKED_FROM and suite in names("profiles"))
    enough = ("full",) if ranked_later else ("full", _asked(report))
    if report.isolation not in enough and report.summary.units == "true":
        return "to learn why isolation is not complete, and what to do: mnb doctor"
    if (before := _repeated(report)) and not report.comparisons:
        return f"for a comparison with the record that was run again: mnb report {source} --compare {quoted(before)}"
    if suite in _TRIALS:
        return f"for a score that bids can be ranked by: mnb {TENDER}"
    if ranked_later:
        todays = f", with today's {suite}" if report.choices.profiles else ""
        return f"for a verdict{todays}: mnb jobs {suite} --repeat {_repeats(report)}"
    if report.neighbours and not report.comparisons:
        return f"for the cost to each victim of each neighbor: mnb report {source} --layout interference"
    if report.comparisons:
        return ""
    baseline = comparable_baseline(report)
    if not baseline and report.choices.profiles:
        return f"for a score, with the shipped profile: mnb jobs {suite}"
    return f"for a comparison: mnb report {source} --compare {baseline or 'OTHER'}"


def _repeated(report: Report) -> Path | None:
    """The result folder of the record that `mnb rerun` repeated; None for any other run."""
    manifest = report.folder.manifest if report.folder else None
    file = Path(manifest.profile.file) if manifest else Path()
    return file.parent if RECORD_NAME.fullmatch(file.name) else None


def _repeats(report: Report) -> int:
    """How many give a verdict, also on the devices that may be slow."""
    behind = report.gpus.behind if report.gpus else ()
    return max([RANKED_FROM, *(at.repeats_needed or 0 for at in behind)])


def _asked(report: Report) -> str:
    """The isolation that the run asked for, if it is known: without a fence, none was."""
    manifest = report.folder.manifest if report.folder else None
    return manifest.fence.requested if manifest else "none"

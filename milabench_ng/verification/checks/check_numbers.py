"""Rules on numbers: each is recomputed from the raw slices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.analysis.scoring.reference import bare_unit
from milabench_ng.records.origin import release
from milabench_ng.records.record import Mnb, Rank, Record, Timing, timing_name
from milabench_ng.records.window import (
    MEASURED_BY,
    MIN_STEPS,
    SliceRow,
    Window,
    backlog_edges,
    recorded_window,
)
from milabench_ng.verification.bundle import Claim
from milabench_ng.verification.checks.missing_ranks import missing_ranks
from milabench_ng.verification.checks.slice_rows import bad_row
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Finding, judged

_SHARED_SINCE = (0, 3)
"""The first version whose windows share the slices across their edges."""
_EXACT = 1e-9
"""Relative tolerance: JSON keeps every digit, so only the order of summation may differ."""
_BOUNDS = ("low", "high")
"""Of intervals: recomputed only if they were claimed by today's formulas."""


def numbers(evidence: Evidence) -> Finding:
    """The records' windows, rates and counts, and the printed table and scores, follow from the slices."""
    return judged([*_in_records(evidence), *_in_claim(evidence)])


def _in_records(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        mnb = record.mnb
        if record.success != (mnb.failure is None):
            yield f"{name}: it says success {record.success} and failure {mnb.failure is not None}"
        window = recomputed_window(mnb) if record.success else None
        if record.success and not _same_window(window, mnb.window):
            yield f"{name}: the window that it states does not follow from its slices"
        for rank in mnb.ranks:
            counted = sum(row.count for row in rank.slices)
            if counted != rank.count:
                yield f"{name}: rank {rank.rank} states {rank.count} items, its slices hold {counted}"
            timing = record.timings.get(timing_name(record.mnb.launch, rank.rank))
            if timing is not None and not _same_rates(timing, rank.slices, mnb.window):
                yield f"{name}: the rates that rank {rank.rank} states do not follow from its slices"


def recomputed_window(mnb: Mnb) -> Window | None:
    """The averaging window recomputed from the slices; None if they do not form one."""
    if mnb.start_s is None or mnb.stop_s is None:
        return None
    return recorded_window([rank.slices for rank in mnb.ranks], mnb.stop_s, mnb.window_rule, mnb.start_s)


def _same_window(one: Window | None, other: Window | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one.start_s, other.start_s, abs_tol=1e-6) and math.isclose(one.end_s, other.end_s, abs_tol=1e-6)


def _same_rates(timing: Timing, rows: Sequence[SliceRow], window: Window | None) -> bool:
    """Compare rates as a record lists them: from the window's first slice on, or all without a window."""
    if any(row.length_s <= 0 for row in rows):
        return False
    expected = [row.count / row.length_s for row in rows if window is None or row.start_s >= window.start_s]
    stated = timing.rates or []
    return len(stated) == len(expected) and all(
        math.isclose(one, other, rel_tol=_EXACT) for one, other in zip(stated, expected, strict=True)
    )


def _in_claim(evidence: Evidence) -> Iterator[str]:
    """Differences between the bundle's claimed numbers and those recomputed from its slices."""
    if evidence.packing is None:
        return
    stated, found = evidence.packing.claim, evidence.claim
    for key in ("suite", "devices", "hardware"):
        yield from _difference(key, getattr(stated, key), getattr(found, key))
    for suite in dict.fromkeys([*stated.scores, *found.scores]):
        yield from _score_difference(suite, stated, found)
    for test in dict.fromkeys([*stated.tests, *found.tests]):
        yield from _test_difference(test, stated, found)


def _score_difference(suite: str, stated: Claim, found: Claim) -> Iterator[str]:
    """Packed before the suite had weights, a bundle claims no score."""
    one, other = stated.scores.get(suite), found.scores.get(suite)
    if one is None or other is None:
        yield from _difference("suites", ", ".join(stated.scores), ", ".join(found.scores))
        return
    bounds = _BOUNDS if stated.statistics == found.statistics else ()
    of = "" if stated.suites is msgspec.UNSET else f"{suite}: "
    if one.status is None:
        return
    yield from _difference(f"{of}unit", bare_unit(one.unit), bare_unit(other.unit))
    for key in ("status", "per_device", "per_node", *bounds):
        yield from _difference(f"{of}{key}", getattr(one, key), getattr(other, key))


def _test_difference(test: str, stated: Claim, found: Claim) -> Iterator[str]:
    if test not in stated.tests or test not in found.tests:
        yield f"{test}: {'claimed, but without a record' if test in stated.tests else 'not claimed'}"
        return
    was, now = (msgspec.structs.asdict(claim.tests[test]) for claim in (stated, found))
    for key, value in was.items():
        if key not in _BOUNDS or stated.statistics == found.statistics:
            yield from _difference(f"{test}: {key}", value, now[key])


def _difference(what: str, stated: object, found: object) -> Iterator[str]:
    close = isinstance(stated, float) and isinstance(found, float) and math.isclose(stated, found, rel_tol=_EXACT)
    if stated != found and not close:
        yield f"{what} was claimed as {stated}, and is {found}"


def slices(evidence: Evidence) -> Finding:
    """The slices of every rank follow each other without gaps, and say what they had made ahead."""
    return judged([*_bad_slices(evidence), *missing_ranks(evidence), *_bad_backlogs(evidence)])


def windows(evidence: Evidence) -> Finding:
    """Each window is as long as demanded, and so is what is left out before and after it."""
    return judged([*_rules_of_windows(evidence), *_shortened_around(evidence)])


def _rules_of_windows(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        mnb, window = record.mnb, record.mnb.window
        if mnb.window_rule != evidence.manifest.window_rule:
            yield f"{name}: its window rule differs from run.json"
        if mnb.window_rule.length_s < evidence.rules.window_s:
            asked = f"{evidence.rules.window_s:g} s are required (by default, or window_s in the rules)"
            yield f"{name}: its window is {mnb.window_rule.length_s:g} s, but {asked}"
        if not record.success:
            continue
        if window is None:
            yield f"{name}: it has no averaging window"
            continue
        for rank in mnb.ranks:
            inside = [row for row in rank.slices if window.holds(row)]
            steps = sum(row.steps for row in inside)
            if steps < MIN_STEPS:
                yield f"{name}: rank {rank.rank} has {steps} steps in its window, at least {MIN_STEPS} are needed"


def _shortened_around(evidence: Evidence) -> Iterator[str]:
    """What a window rule leaves away besides the window's length: time to settle, time before the stop, its edges."""
    rule, whole = evidence.manifest.window_rule, min(1.0, evidence.rules.window_s / MEASURED_BY.length_s)
    for what, seconds, usual in (
        ("after the start", rule.settle_s, MEASURED_BY.settle_s),
        ("before the stop", rule.margin_s, MEASURED_BY.margin_s),
    ):
        if seconds < usual * whole * (1 - _EXACT):
            yield f"{seconds:.2g} s are left out {what}, but {usual * whole:.2g} s are required"
    if release(evidence.manifest.version) >= _SHARED_SINCE and rule.edges != MEASURED_BY.edges:
        yield "slices across a boundary of the window count nothing. Since 0.3.0 their part inside counts"


def _bad_slices(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        for rank in record.mnb.ranks:
            reason = bad_row(rank.slices, record.mnb.start_s)
            if reason:
                yield f"{name}: rank {rank.rank}: {reason}"


def _bad_backlogs(evidence: Evidence) -> Iterator[str]:
    """Contradictions about items produced ahead, between slices and record."""
    have = {record.mnb.label for _, record in evidence.named() if False in _lacks_backlog(record)}
    for name, record in evidence.named():
        lacks = _lacks_backlog(record)
        if len(lacks) > 1:
            yield f"{name}: some of its slices have prefetched items and some have none"
        elif True in lacks and record.mnb.label in have:
            yield f"{name}: its slices have no prefetched items, unlike other launches of its test"
        elif True in lacks and _fed_by_loaders(record):
            yield f"{name}: loader processes feed it, but its slices have no prefetched items"
        for rank, inside in _windows(record):
            known = [row.backlog for row in inside if row.backlog is not None]
            older = (known[0], known[-1]) if known else None  # from the first and last slice only
            if rank.backlog not in (backlog_edges(inside), older):
                yield f"{name}: rank {rank.rank}: its prefetched items do not match its slices"


def _fed_by_loaders(record: Record) -> bool:
    options = record.mnb.launch.arguments
    return record.success and options.get("source") == "loader" and options.get("workers") != 0


def _lacks_backlog(record: Record) -> set[bool]:
    """Whether the slices lack a backlog; both values if only some do."""
    return {row.backlog is None for rank in record.mnb.ranks for row in rank.slices}


def _windows(record: Record) -> Iterator[tuple[Rank, list[SliceRow]]]:
    """The ranks of a successful launch, with the slices of its window."""
    window = recomputed_window(record.mnb) if record.success else None
    if window is not None:
        yield from ((rank, [row for row in rank.slices if window.holds(row)]) for rank in record.mnb.ranks)

"""Whether a run ended at the repeat at which its rule for stopping has it, by its records and its ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from milabench_ng.analysis.scoring.narrowness import as_of, headline
from milabench_ng.records.borders import date_of, narrow, spent
from milabench_ng.records.ledger import (
    AnyLedgerEvent,
    Attempt,
    LaunchKey,
    LedgerLine,
    Recorded,
    StoppedEarly,
)
from milabench_ng.records.names import MANIFEST
from milabench_ng.records.stopping import LEAST, Stopping
from milabench_ng.verification.evidence import Evidence

_DECIDING_S = 60.0
"""The longest time from the last record of a run to the word that it is enough: the records are read in between."""


def wrongly_ended(evidence: Evidence) -> Iterator[str]:
    """What is wrong with the end of the run, by its rule, its records and its ledger."""
    rule, entries = evidence.manifest.stopping, evidence.ledger.entries
    ends = [place for place, entry in enumerate(entries) if isinstance(entry.what, StoppedEarly)]
    if rule is None:
        yield from [f"the ledger ends the run by a rule for stopping, and {MANIFEST} has none"] if ends else []
        return
    if rule.least < LEAST:
        yield f"its rule judges the interval from {rule.least} repeats on, and fewer than {LEAST} say too little"
    if len(ends) > 1:
        yield f"the ledger ends the run {len(ends)} times"
    try:
        yield from _borders(evidence, rule, entries, ends[:1])
    except ValueError:
        yield "the ledger has no dates that its rule for stopping could be checked against"


def _borders(evidence: Evidence, rule: Stopping, entries: Sequence[LedgerLine], ends: Sequence[int]) -> Iterator[str]:
    """Every border that the run went on at, then the one that it ended at."""
    runs = {(one.label, one.job_id): one.run for one in evidence.manifest.plan.measured}
    for repeats in range(1, evidence.manifest.plan.repeat):
        place = next((at for at, entry in enumerate(entries) if _run(entry.what, runs) >= repeats), None)
        if place is None or (ends and place > ends[0]):
            break
        if place and (end := _end(evidence, rule, entries[:place], repeats, entries[place - 1])):
            yield f"it went on after {repeats} repeats, when {end.detail}"
    for place in ends:
        event = entries[place].what
        assert isinstance(event, StoppedEarly)
        took_s = (date_of(entries[place]) - date_of(entries[place - 1])).total_seconds()
        if took_s > _DECIDING_S:
            yield f"it was idle for {took_s:.0f} s before its rule ended it"
        if not _end(evidence, rule, entries[:place], event.repeats, entries[place]):
            known = _known(evidence, entries[:place])
            yield f"it ended after {event.repeats} repeats, where its rule had it go on: {known}"


def _end(
    evidence: Evidence, rule: Stopping, entries: Sequence[LedgerLine], repeats: int, last: LedgerLine
) -> StoppedEarly | None:
    """The end that the rule asks for after ``repeats``, when the ledger held ``entries``, at the time of ``last``."""
    known = headline(as_of(evidence.summary.tests, _done(entries)))
    return narrow(rule, repeats, known) or spent(rule, repeats, entries, date_of(last))


def _known(evidence: Evidence, entries: Sequence[LedgerLine]) -> str:
    known = headline(as_of(evidence.summary.tests, _done(entries)))
    return f"{known.figure} was {'not known' if known.width is None else f'±{100 * known.width:.2g}%'}"


def _done(entries: Sequence[LedgerLine]) -> set[LaunchKey]:
    events = (entry.what for entry in entries)
    return {(event.label, event.job_id) for event in events if isinstance(event, Recorded) and event.cause is None}


def _run(event: AnyLedgerEvent, runs: Mapping[LaunchKey, int]) -> int:
    """The repeat of an attempt; -1 for anything else."""
    return runs.get((event.label, event.job_id), -1) if isinstance(event, Attempt) else -1

"""Rules on the books: every launch has its record, every attempt is known, and there were not too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from milabench_ng.model.plan import Role
from milabench_ng.model.units import counted
from milabench_ng.records.ledger import (
    Chain,
    Recorded,
    Resumed,
    Sampled,
    Session,
    Started,
    attempts,
    contradictions,
    lost_attempts,
    recorded,
)
from milabench_ng.records.names import MANIFEST
from milabench_ng.verification.checks.clocks import undated
from milabench_ng.verification.checks.stopping import wrongly_ended
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged, unknown


def complete(evidence: Evidence) -> Finding:
    """Every planned launch has a readable record, there are no others, and the run ended where its rule has it."""
    return judged([*_gaps(evidence), *wrongly_ended(evidence)])


def _gaps(evidence: Evidence) -> Iterator[str]:
    if evidence.going_on:
        yield "the run is still in progress"
    left = evidence.failures.left
    if left and evidence.summary.between_sessions:
        yield f"{counted(left, 'launch')} of later sessions have not run yet"
    elif left:
        yield f"it was interrupted with {counted(left, 'launch')} left: mnb resume runs them"
    yield from (f"{problem.file}: {problem.reason}" for problem in evidence.unreadable)
    yield from _unread_by_the_report(evidence)
    unread = {(problem.test, problem.job_id) for problem in evidence.unreadable}
    planned = {
        (one.label, one.job_id, one.known_role, batch.number): (one.test, one.job_id)
        for batch in evidence.asked.batches
        for one in batch.launches
    }
    gone = {place for place, name in planned.items() if name not in unread}
    records = (kept.record for kept in evidence.records)
    there = Counter((one.mnb.label, one.job_id, one.mnb.launch.known_role, one.mnb.batch) for one in records)
    for label, job_id, role, _ in sorted(gone - there.keys()):
        yield f"{label} J{job_id}: it was planned{_as(role)} and has no record"
    for label, job_id, role, _ in sorted(there.keys() - planned.keys()):
        yield f"{label} J{job_id}: it has a record{_as(role)} and was not planned"
    tried = attempts(evidence.ledger.events)
    for (label, job_id, role, _), count in sorted(there.items()):
        if role == "measured" and count > max(1, tried[label, job_id]):
            of = counted(max(1, tried[label, job_id]), "attempt")
            yield f"{label} J{job_id}: {counted(count, 'record')} of {of}"
    run_id = evidence.manifest.run_id
    for kept in evidence.records:
        if kept.record.mnb.run_id != run_id:
            yield f"{kept.file}: it is of run {kept.record.mnb.run_id}, {MANIFEST} of {run_id}"
    strays = set(evidence.strays)
    for name in evidence.foreign:
        if name.endswith(".json") and name not in strays:
            yield f"{name}: it belongs to no run"


def _as(role: Role) -> str:
    return "" if role == "measured" else " as a neighbor"


def _unread_by_the_report(evidence: Evidence) -> Iterator[str]:
    """Files that are complete records but hold numbers that the report refuses."""
    known = {*(problem.file for problem in evidence.unreadable), *evidence.strays}
    rows = evidence.summary.tests.values()
    failed = ((one.file, one.detail) for row in rows for one in row.failed if one.cause == "unreadable")
    loose = ((problem.file, problem.reason) for problem in evidence.summary.problems)
    yield from (f"{file}: {reason}" for file, reason in (*failed, *loose) if file not in known)


def ledger(evidence: Evidence) -> Finding:
    """The chain of the ledger is sound, and every attempt in it has the record that it names."""
    chain = evidence.ledger
    if not evidence.has_ledger:
        missing = "there is no ledger.jsonl: attempts that left no record cannot be seen"
        written = evidence.same_version
        if written:
            missing += f"; mnb {evidence.version} writes one in every run"
        return judged([missing]) if written or evidence.rules.ledger else unknown(missing)
    return judged(
        [
            *chain.problems,
            *_beginning(evidence, chain),
            *_records(evidence, chain),
            *_series(evidence, chain),
            *_sessions(evidence, chain),
            *undated(evidence),
        ]
    )


def _beginning(evidence: Evidence, chain: Chain) -> Iterator[str]:
    if chain.torn:
        yield "its last line is cut short"
    manifest = evidence.manifest
    for event in chain.events:
        if isinstance(event, Started):
            stated = (event.run_id, event.plan_sha256, event.profile_sha256, event.nonce)
            if event.stopping != manifest.stopping:
                yield f"the rule for stopping in {MANIFEST} differs from the start of the run"
            if stated != (manifest.run_id, manifest.plan.sha256, manifest.profile.sha256, manifest.plan.nonce):
                yield f"run, plan, profile or nonce in {MANIFEST} differ from the start of the run"
            if event.version != manifest.version:
                yield f"the run was begun by mnb {event.version}, {MANIFEST} says {manifest.version}"


def _records(evidence: Evidence, chain: Chain) -> Iterator[str]:
    sums = {kept.file: kept.sha256 for kept in evidence.records} | {one.file: "" for one in evidence.unreadable}
    return contradictions(chain, sums)


def _series(evidence: Evidence, chain: Chain) -> Iterator[str]:
    noted = {event.file: event.sha256 for event in chain.events if isinstance(event, Sampled)}
    for file, digest in noted.items():
        if file not in evidence.series:
            yield f"{file}: the telemetry of a launch group was kept, and is not there"
        elif evidence.series[file] != digest:
            yield f"{file}: the file was changed after it was recorded"
    yield from (f"{file}: not in the ledger" for file in evidence.series if file not in noted)


def _sessions(evidence: Evidence, chain: Chain) -> Iterator[str]:
    """Records of a session that others than it noted: sessions vouch for the spread between them."""
    stated = {kept.file: kept.record.mnb.session for kept in evidence.records}
    number = 0
    for event in chain.events:
        if isinstance(event, Session):
            number = event.number
        elif isinstance(event, Recorded) and stated.get(event.file, number) != number:
            yield f"{event.file}: it is of session {stated[event.file]}, and session {number} noted it"


def caps(evidence: Evidence) -> Finding:
    """Failures, retries, resumes and sessions stay within what is allowed."""
    rules, rate = evidence.rules, evidence.failures
    wanted = (rules.failure_rate, rules.retries, rules.resumes, rules.sessions)
    if all(cap is None for cap in wanted):
        return OFF
    reasons = []
    if rules.failure_rate is not None and rate.exceeds(rules.failure_rate):
        reasons.append(f"{rate.text}, but the rules allow {100 * rules.failure_rate:g}%")
    if evidence.has_ledger:
        events = evidence.ledger.events
        counted = (
            ("retries", rules.retries, sum(count - 1 for count in attempts(events).values())),
            ("resumes", rules.resumes, sum(isinstance(event, Resumed) for event in events)),
            ("sessions", rules.sessions, evidence.summary.starts),
        )
        reasons += [
            f"{count} {what}, but the rules allow {cap}"
            for what, cap, count in counted
            if cap is not None and count > cap
        ]
    elif any(cap is not None for cap in wanted[1:]):
        reasons.append("retries, resumes and sessions are limited, and there is no ledger.jsonl that counts them")
    return judged(reasons)


def attempts_fact(evidence: Evidence) -> str:
    """The ledger in one line; what failed is counted as in the failure rate, and the rest without a result is not."""
    if not evidence.has_ledger:
        return "not recorded"
    events = evidence.ledger.events
    tried = attempts(events)
    untried = (
        0 if evidence.failures.left else sum((one.label, one.job_id) not in tried for one in evidence.asked.measured)
    )
    failed = max(0, evidence.failures.fail - untried)
    good = sum(event.cause is None for event in recorded(events))
    read = {kept.file for kept in evidence.records} | {one.file for one in evidence.unreadable}
    gone = len(lost_attempts(events)) + sum(event.file not in read for event in recorded(events))
    return (
        f"{counted(tried.total(), 'attempt')} in the ledger: {failed} failed, {max(0, tried.total() - good - failed)} "
        f"interrupted; {gone} without a record; {counted(evidence.summary.starts, 'session')}"
    )

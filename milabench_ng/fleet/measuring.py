"""From the summaries of all sessions to what nodes are judged by, and to a row for each node. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from milabench_ng.analysis.scoring.scale import Scale
from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.summary.summary import Summary, TestSummary
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.nodes import SCREEN, NodeName
from milabench_ng.fleet.ran_profile import RanProfile
from milabench_ng.fleet.summaries import SessionSummary
from milabench_ng.fleet.verdicts.measured import Kind, Measured, NodeSample, kind_of, measured
from milabench_ng.model.bounds import SMALLEST
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import gathered
from milabench_ng.verification.absurd import computing_from


class TestOfNode(msgspec.Struct, frozen=True, kw_only=True):
    """A test of one session: what the report of a fleet needs of it."""

    __test__ = False  # not a pytest class

    unit: str
    kind: Kind
    logs: dict[str, float]
    """Mean logarithm of the rate by device."""
    failures: int
    mismatches: int
    """Of the failures, those with a wrong result."""


class SessionOfNode(msgspec.Struct, frozen=True, kw_only=True):
    """A session, reduced: a summary takes thirty times as much memory."""

    node: NodeName
    session: str
    tests: dict[str, TestOfNode]
    traits: dict[str, str]
    """Profile, hardware, software and settings, in words."""
    other_profile: str
    """Why its rates cannot be compared with the fleet's; empty if they can."""
    runs: tuple[str, ...] = ()
    """The ids of its runs, which no two sessions share."""
    marks: tuple[str, ...]
    """The kinds of its comparability warnings."""
    per_node: float | None
    """The score of the node; None unless it ran all weighted tests."""
    unit: str
    """Of the score."""
    device_hours: float
    """Of all launches on GPUs."""


class FleetResults(msgspec.Struct, frozen=True, kw_only=True):
    """All that the nodes of a fleet measured."""

    sessions: tuple[SessionOfNode, ...]
    measured: Measured
    units: Mapping[str, str]
    """By test."""
    pending: tuple[NodeName, ...]
    """Nodes whose screen is not over."""
    problems: tuple[str, ...]
    """Sessions that cannot be read, and why."""


def results_of(fleet: FleetFolder, found: Iterable[SessionSummary], scale: Scale) -> FleetResults:
    """Reduce every summary as it comes."""
    sessions: list[SessionOfNode] = []
    unread: dict[tuple[str, str], str] = {}
    asked = RanProfile.asked(fleet.manifest)
    for one in found:
        session = one.session
        if one.summary is None:
            unread[session.node, session.session] = one.problem
            continue
        try:
            with computing_from(session.name):
                sessions.append(_reduced(session.node, session.session, one.summary, scale, asked))
        except InputError as error:
            unread[session.node, session.session] = str(error)
    lost, pending = _without(fleet, {one.node for one in sessions if one.session == SCREEN}, unread)
    known = [one for one in sessions if one.node not in pending and one.node not in lost]
    there = [one for one in known if not one.other_profile]
    cut_off = {key for key, standing in fleet.standings.items() if standing.state in ("running", "cut off", "lost")}
    whole = [one for one in there if (one.node, one.session) not in cut_off]
    rows = {label: test for one in reversed(there) for label, test in one.tests.items()}
    return FleetResults(
        sessions=tuple(sessions),
        # Of a session that was cut off, nothing says what else its end has spoilt: only a wrong result counts.
        measured=measured(_samples(whole), _kinds(there), _failed(whole), lost, _wrong(known), _apart(known)),
        units={label: test.unit for label, test in rows.items()},
        pending=tuple(pending),
        problems=tuple(f"{node} {session}: {why}" for (node, session), why in unread.items()),
    )


def _without(
    fleet: FleetFolder, screened: set[NodeName], unread: Mapping[tuple[str, str], str]
) -> tuple[dict[NodeName, str], list[NodeName]]:
    """The nodes that are lost, with the reason, and those whose screen is still to come."""
    lost: dict[NodeName, str] = {}
    pending: list[NodeName] = []
    standings = fleet.standings
    for node in fleet.manifest.nodes:
        standing = standings[node, SCREEN]
        if standing.state == "lost":
            lost[node] = standing.reason
        elif standing.state != "ended":
            pending.append(node)
        elif (node, SCREEN) in unread:
            lost[node] = f"its results cannot be read: {unread[node, SCREEN]}"
        elif node not in screened:
            lost[node] = standing.reason or "no results are here"
    return lost, pending


def _reduced(node: NodeName, session: str, summary: Summary, scale: Scale, asked: RanProfile) -> SessionOfNode:
    other = RanProfile.of(summary).unlike(asked)
    weights = None if summary.suites or other else scale.weights
    scored = score(summary, weights, scale.reference) if weights else None
    on_cpus = "CPU" in summary.models.values()
    return SessionOfNode(
        node=node,
        session=session,
        tests={label: _test(row) for label, row in summary.tests.items()},
        traits=_traits(summary),
        other_profile=other,
        runs=summary.runs,
        marks=tuple(dict.fromkeys(mark.kind for row in summary.tests.values() for mark in row.marks)),
        per_node=scored.per_node if scored and scored.status == "complete" else None,
        unit=scored.unit if scored else "",
        device_hours=math.fsum(map(_device_hours, () if on_cpus else summary.tests.values())),
    )


def _test(row: TestSummary) -> TestOfNode:
    return TestOfNode(
        unit=row.work.unit,
        kind=kind_of(row.work.bound),
        logs=_logs(row),
        failures=row.failures,
        mismatches=sum(one.cause == "mismatch" for one in row.failed),
    )


def _logs(row: TestSummary) -> dict[str, float]:
    """Mean logarithms by device, of the launches that have a rate; a launch over several counts for its last."""
    found = gathered(
        (job.partition(".")[2].partition("#")[0], math.log(rate))
        for job, rate in row.launches.items()
        if rate >= SMALLEST
    )
    return {device: math.fsum(logs) / len(logs) for device, logs in found.items()}


def _device_hours(row: TestSummary) -> float:
    if row.total is None:
        return 0.0
    width = row.devices if row.work.scheme.spreads else 1
    return row.total.mean * row.total.n * width / 3600


def _traits(summary: Summary) -> dict[str, str]:
    made = summary.provenance
    isolation = {"isolation": summary.isolation} if summary.isolation else {}
    return {"profile": RanProfile.of(summary).words, "GPUs": made.hardware, **made.node, **made.software, **isolation}


def _kinds(sessions: Iterable[SessionOfNode]) -> dict[str, Kind]:
    told = gathered((label, test.kind) for one in sessions for label, test in one.tests.items())
    return {label: kinds[0] for label, kinds in told.items()}


def _samples(sessions: Iterable[SessionOfNode]) -> Iterator[NodeSample]:
    for one in sessions:
        for label, test in one.tests.items():
            for device, log in test.logs.items():
                yield NodeSample(node=one.node, session=one.session, test=label, device=device, log_rate=log)


def _failed(sessions: Iterable[SessionOfNode]) -> dict[str, dict[str, tuple[str, ...]]]:
    failed: dict[str, dict[str, tuple[str, ...]]] = {}
    for one in sessions:
        tests = tuple(label for label, test in one.tests.items() if test.failures)
        if tests:
            failed.setdefault(one.node, {})[one.session] = tests
    return failed


def _wrong(sessions: Iterable[SessionOfNode]) -> dict[str, tuple[str, ...]]:
    """The tests in which a node computed something wrong."""
    wrong: dict[str, tuple[str, ...]] = {}
    for one in sessions:
        tests = [label for label, test in one.tests.items() if test.mismatches]
        if tests:
            wrong[one.node] = tuple(dict.fromkeys((*wrong.get(one.node, ()), *tests)))
    return wrong


def _apart(sessions: Iterable[SessionOfNode]) -> dict[str, str]:
    """The nodes that cannot be compared, and why."""
    return {one.node: one.other_profile for one in sessions if one.other_profile}

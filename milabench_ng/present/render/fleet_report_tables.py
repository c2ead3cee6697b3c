"""The report on a fleet, as statements and tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from milabench_ng.analysis.scoring.reference import unit_told
from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.fleet.manifest import ADOPT_AGAIN, ADOPTED
from milabench_ng.fleet.network.judging import LINK_STATES
from milabench_ng.fleet.nodes import NodeName, retest
from milabench_ng.fleet.report import FleetReport, NodeLine
from milabench_ng.fleet.verdicts.judging import NOT_RETESTED
from milabench_ng.fleet.verdicts.limits import USUAL
from milabench_ng.fleet.verdicts.measured import WORDS, Kind
from milabench_ng.fleet.verdicts.verdict import VERDICTS, NodeVerdict
from milabench_ng.model.plain import names_of, plain, short
from milabench_ng.model.stats import median
from milabench_ng.model.units import counted, format_seconds, four_digits
from milabench_ng.present.render.cells import (
    Cell,
    Fact,
    Tone,
    exact_ratio,
    money,
    number,
    one_decimal,
    reason_text,
    toned,
    whole,
)
from milabench_ng.present.render.network_tables import (
    network_facts,
    network_sections,
    over_nodes_facts,
    over_nodes_sections,
)
from milabench_ng.present.render.sections import Document, Facts, Heading, Part, Section, table

_FEWEST = 0.001
MOST_NAMED = 8
"""So many nodes are named in a line; a file has all."""


def fleet_document(report: FleetReport) -> Document:
    """The report in every form; CSV has a row for each node."""
    told = tuple(fleet_facts(report))
    drain = tuple(drain_facts(report.verdict.nodes))
    parts: tuple[Part, ...] = (Facts(facts=told), *fleet_sections(report), *([Facts(facts=drain)] if drain else []))
    return Document(title="mnb report: fleet", parts=parts, table=all_nodes(report), aside=told, whole=_whole(report))


def fleet_sections(report: FleetReport) -> tuple[Section, ...]:
    """The tables for people; empty ones are left out."""
    made = (not_passed(report), _groups(report), _tests(report), _differing(report), _noticed(report))
    between = network_sections(report.network) if report.network else ()
    over = over_nodes_sections(report.over_nodes) if report.over_nodes else ()
    return (*(section for section in made if section.rows), *between, *over)


def fleet_facts(report: FleetReport) -> Iterator[Fact]:
    """What is known of the fleet as a whole, the expected false alarms above all tables."""
    verdict, manifest = report.verdict, report.manifest
    counts = {name: verdict.count(name) for name in VERDICTS}
    told = ", ".join((*(f"{count:,} {name}" for name, count in counts.items() if count), *_links(report)))
    yield Fact("verdict", told or "no node has results", _VERDICT_TONES[report.exit_code])
    yield Fact("false alarms", _false_alarms(report))
    yield Fact("fleet", f"{counted(len(manifest.nodes), 'node')}, {manifest.suite}, launcher {manifest.launcher}")
    if report.pending:
        name, then = ("pending", "") if report.going_on else ("cut off", ". mnb fleet resume goes on with them")
        yield Fact(name, f"{counted(len(report.pending), 'node')}: {names_of(report.pending)}{then}", "fair")
    if (nodes := _not_retested(report)) and not report.going_on:
        yield Fact("next", _retest(report, nodes), "strong")
    yield from (Fact("problem", problem, "bad") for problem in report.problems)
    if report.marks:
        yield Fact("warnings", f"on all nodes: {', '.join(report.marks)}", "fair")
    if report.device_hours:
        yield Fact("GPU time", f"{format_seconds(3600 * report.device_hours)} in launches")
    yield from _scores(report)
    if report.network is not None:
        yield from network_facts(report.network)
    if report.over_nodes is not None:
        yield from over_nodes_facts(report.over_nodes)
    if report.unmet and not report.going_on:
        yield Fact("not measured", f"nodes have still to meet ({', '.join(report.unmet)}): mnb fleet resume", "fair")


def _not_retested(report: FleetReport) -> tuple[NodeName, ...]:
    return tuple(one.node for one in report.verdict.nodes if one.why == NOT_RETESTED)


def _retest(report: FleetReport, nodes: Sequence[NodeName]) -> str:
    """How suspicious ``nodes`` get the retests that decide on them."""
    told, manifest = f"retest {names_of(nodes)}", report.manifest
    if manifest.launcher == ADOPTED:
        sessions = " and ".join(map(retest, (1, 2)))
        return f"{told}: run the profile again there and on three others, as {sessions}. Then {ADOPT_AGAIN}"
    if manifest.retests:
        return f"{told}: mnb fleet resume"
    return f"{told}: run the fleet again with --retests {USUAL.retests}; it ran with --retests 0"


def not_passed(report: FleetReport) -> Section:
    """The nodes that a buyer has to look at."""
    order = {name: place for place, name in enumerate(VERDICTS)}
    lines = [line for line in report.lines if line.verdict.verdict != "pass"]
    lines.sort(key=lambda line: (order[line.verdict.verdict], line.verdict.ratio.value if line.verdict.ratio else 0.0))
    rows = [_row(line) for line in lines]
    notes = ("ratio: to the fleet's median, with its 95% interval; of the retests alone, or of the screen without any",)
    decided = any(line.verdict.ratio for line in lines)
    return table("nodes that do not pass", rows, *_NODE_HEADINGS, notes=notes if decided else ())


def all_nodes(report: FleetReport) -> Section:
    """Every node, with its ratio in every test."""
    tests = (Heading(name_of_row(one.test), "", exact_ratio, True, key=one.test) for one in report.tests)
    more = (Heading("score", "", number, True), Heading("GPU-hours", "", one_decimal, True))
    rows = [(*_row(line), line.per_node, line.device_hours or None, *line.ratios) for line in report.lines]
    return table("nodes", rows, *_NODE_HEADINGS, *more, *tests)


def _row(line: NodeLine) -> tuple[Cell, ...]:
    one = line.verdict
    ratio = (one.ratio.value, one.ratio.low, one.ratio.high) if one.ratio else (None, None, None)
    why = "; ".join(filter(None, (one.why, f"failed: {', '.join(map(name_of_row, one.failed))}" if one.failed else "")))
    also = ", ".join(cause.words for cause in one.also[:MOST_NAMED])
    return (
        one.node,
        line.group or None,
        one.verdict,
        *ratio,
        one.cause.words if one.cause else None,
        PARTS[one.cause.kind] if one.cause else None,
        one.retests,
        "; ".join(filter(None, (why, f"also {also}" if also else ""))) or None,
    )


def _links(report: FleetReport) -> Iterator[str]:
    """The links that do not pass, as part of the verdict."""
    if report.network is None:
        return
    for state in LINK_STATES:
        if state != "pass" and (count := report.network.count(state)):
            yield counted(count, f"{state} link")


def _groups(report: FleetReport) -> Section:
    """How each rack or switch does."""
    groups = dict.fromkeys(line.group for line in report.lines) if report.grouped else {}
    rows = []
    for group in groups:
        lines = [line for line in report.lines if line.group == group]
        ratios = [line.verdict.ratio.value for line in lines if line.verdict.ratio]
        counts = (sum(line.verdict.verdict == name for line in lines) for name in VERDICTS)
        rows.append((group, len(lines), *counts, median(ratios) if ratios else None))
    verdicts = (Heading(name, "", whole, True) for name in VERDICTS)
    middle = Heading("median ratio", "", exact_ratio, True)
    return table("groups", rows, "group", Heading("nodes", "", whole, True), *verdicts, middle)


def _tests(report: FleetReport) -> Section:
    rows = [
        (
            one.test,
            one.unit,
            one.nodes,
            one.median,
            one.low,
            one.high,
            one.worst,
            one.worst / one.median,
            one.worst_node,
        )
        for one in report.tests
    ]
    rates = (Heading(title, "unit/s", number, True) for title in ("median", "5% of nodes below", "5% above", "worst"))
    return table(
        "tests over all nodes, per device, from the screen",
        rows,
        "test",
        "unit",
        Heading("nodes", "", whole, True),
        *rates,
        Heading("worst / median", "", exact_ratio, True),
        "worst node",
    )


def _differing(report: FleetReport) -> Section:
    every = len(report.lines)
    rows = [
        (
            one.what if not place else "",
            value,
            len(nodes),
            names_of(nodes) if place or 2 * len(nodes) <= every else None,
        )
        for one in report.differing
        for place, (value, nodes) in enumerate(one.values)
    ]
    title = "what differs between nodes, the most frequent value first"
    return table(title, rows, "what", "value", Heading("nodes", "", whole, True), "which")


def _noticed(report: FleetReport) -> Section:
    scopes = {"all": "all {} tests", "test": "one of the {} tests", "device": "one device, in {} tests"}
    rows = [
        (scopes[one.scope].format(WORDS[one.kind]), 100 * one.spread, 100 * one.found if one.found < 1 else "none")
        for one in report.verdict.noticed
    ]
    return table(
        "what can be found with this fleet's spread",
        rows,
        "a node is slow in",
        Heading("std of nodes", "%", one_decimal, True),
        Heading("found with 95% from", "% slower", one_decimal, True),
    )


def _false_alarms(report: FleetReport) -> str:
    if not report.verdict.noticed:
        return "not known: too few nodes have results to say how much healthy ones differ"
    expected, strict = report.verdict.expected_false_alarms, report.verdict.strictness
    told = f"{expected:.2g}" if expected >= _FEWEST else f"fewer than {_FEWEST}"
    return (
        f"{told} expected in a healthy fleet of this spread "
        f"(limit: any in {100 * strict.false_alarms:g}% of fleets); margin {100 * strict.margin:g}%"
    )


def _scores(report: FleetReport) -> Iterator[Fact]:
    if (made := report.score) is None:
        if report.unpriced:
            yield Fact("price / score", f"none: {report.unpriced}", "fair")
        return
    covered = "" if made.nodes == made.of else f", over {made.nodes:,} of {counted(made.of, 'node')}"
    worst = f"worst {four_digits(made.worst)} ({plain(made.worst_node)})"
    yield Fact("score per node", f"{worst}, median {four_digits(made.median)} {unit_told(made.unit)}{covered}")
    yield Fact("score of all", f"{four_digits(made.total)} {unit_told(made.unit)}{covered}")
    prices = {"worst node": made.per_point(made.worst), "median": made.per_point(made.median)}
    without = made.of - made.nodes
    prices[f"sum over all nodes{f' ({without:,} without a score)' if without else ''}"] = made.total_per_point
    if told := ", ".join(f"by the {of} {money(price)}" for of, price in prices.items() if price is not None):
        yield Fact("price / score", told)


def _whole(report: FleetReport) -> object:
    return {"schema": 1, "exit_code": report.exit_code, "tests": [one.test for one in report.tests], "report": report}


PARTS: dict[Kind, str] = {"gpu": "GPU", "host": "host", "storage": "storage", "link": "links"}
_VERDICT_TONES: dict[int, Tone] = {0: "good", 1: "bad", 3: "fair"}
_NODE_HEADINGS = (
    Heading("node"),
    Heading("group"),
    Heading("verdict", tone=toned({"pass": "good", "inconclusive": "fair"}, "bad")),
    Heading("ratio", "", exact_ratio, True),
    Heading("at least", "", exact_ratio, True),
    Heading("at most", "", exact_ratio, True),
    Heading("slow in"),
    Heading("part", spare=1),
    Heading("retests", "", whole, True),
    Heading("because", "", reason_text, words=60),
)


DRAINED = ("slow", "faulty")
"""Verdicts of nodes that nobody should get a job on, by the work that they finished."""


def drain_facts(verdicts: Sequence[NodeVerdict]) -> Iterator[Fact]:
    """What Slurm would be told of every node that should not work.

    A lost node shows nothing of itself: a connection, a disk or an option may be why.
    """
    for place, one in enumerate(one for one in verdicts if one.verdict in DRAINED):
        reason = short(f"mnb: {one.verdict}{_detail(one)}")
        words = ("scontrol", "update", f"nodename={one.node}", "state=drain", f"reason={reason}")
        yield Fact("" if place else "to drain", shlex.join(words))
    if lost := [one.node for one in verdicts if one.verdict == "lost"]:
        yield Fact("look first", f"{names_of(lost)}: lost, perhaps for a reason that is not the node's")


def _detail(one: NodeVerdict) -> str:
    if one.cause is not None and one.ratio is not None:
        return f", {100 * (1 - one.ratio.value):.1f}% in {one.cause.words}"
    failed = f"{', '.join(map(name_of_row, one.failed))} failed" if one.failed else ""
    return f", {one.why or failed}" if one.why or failed else ""

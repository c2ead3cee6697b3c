"""What the numbers of a report rest on: the statements below the tables. Pure.

`first_screen` has what a decision needs; nothing of it is repeated here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from milabench_ng.analysis.launch.traces import COMPARED, STRENGTHS
from milabench_ng.analysis.summary.power import lost_samples, power_doubts
from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.model.grouping import grouped
from milabench_ng.model.limits import LIMITS, ON_HOST
from milabench_ng.model.stats import median
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import Fact, narrowed_by
from milabench_ng.present.render.choices_told import choices_told
from milabench_ng.present.render.energy_told import energy_told
from milabench_ng.present.render.ratio_statements import charged_ratios, ratios
from milabench_ng.records.marks import MarkKind
from milabench_ng.records.record import kind_word
from milabench_ng.report.report import Report

_ONLY_IF_FOUND = {*get_args(MarkKind), "stall"}
"""Conditions that a launch has only beyond their limit."""
_ON_FIRST_SCREEN = ("processors", "memory")


def details(report: Report, *, charged: bool = False) -> Iterator[Fact]:
    """The statements for which this report has data; ``charged``: also the ratios of charged scores."""
    yield from _machine(report)
    for part in report.scored:
        for fact in (*_score_interval(part), *ratios(part), *(charged_ratios(part) if charged else ())):
            suite = f", {part.summary.suite}" if report.suites else ""
            yield Fact(f"{fact.name}{suite}", fact.text, fact.tone)
    yield Fact("failure rate", report.failure_rate.text)
    yield from (fact for fact in choices_told(report) if fact.tone == "plain")
    yield from _spread("spread of runs", [line.scored.run_to_run_pct for line in report.lines])
    yield from _spread("spread of devices", [line.scored.between_devices_pct for line in report.lines])
    yield from _conditions(report)
    yield from (Fact("note", note, "fair") for note in report.summary.notes)


def _machine(report: Report) -> Iterator[Fact]:
    """The machine around the devices, which sets the pace of many tests, as far as the first screen lacks it."""
    known = report.summary.provenance.node
    rest = [f"{name} {value}" for name, value in known.items() if name not in _ON_FIRST_SCREEN]
    if rest:
        yield Fact("node", "; ".join(rest))


def _score_interval(report: Report) -> Iterator[Fact]:
    """What the score's interval rests on."""
    score = report.score
    at = None if score is None else score.interval or score.repeats
    if score is None or score.per_device is None or at is None:
        return
    few = (
        "; their range, no interval; fewer than 5 repeats understate the variance penalty"
        if at is score.repeats
        else ""
    )
    text = f"{at.n} repeats, {report.coverage}{few}; {narrowed_by(score.repeats_needed)}"
    yield Fact("rests on", text, "fair" if few else "plain")


def _spread(name: str, values: Sequence[float | None]) -> Iterator[Fact]:
    known = [value for value in values if value is not None]
    if known:
        of = counted(len(known), "test")
        yield Fact(name, f"median {median(known):.1f}% over {of}, max {max(known):.1f}%")


def _conditions(report: Report) -> Iterator[Fact]:
    """The data, and what is known less well."""
    data = dict.fromkeys(entry for line in report.lines for entry in line.row.work.data)
    if data:
        yield Fact(
            "data", "; ".join(f"{d.name} ({kind_word(d.kind)}, scale {d.scale:g}, {d.cache} cache)" for d in data)
        )
    kernels = grouped(
        [(line.scored.test, kernel) for line in report.lines for kernel in line.row.kernels], lambda pair: pair[1]
    )
    for kernel, pairs in kernels.items():
        yield Fact("kernels", f"{kernel} in {', '.join(name_of_row(test) for test, _ in pairs)}")
    rows = {line.scored.test: line.row for line in report.lines}
    yield from (Fact("telemetry", text, "fair") for text in lost_samples(rows))
    yield from (Fact("power", text, "fair") for text in power_doubts(rows))
    yield from energy_told(report)
    yield from _limits(report)
    yield from _reference(report)


def _limits(report: Report) -> Iterator[Fact]:
    """How many kinds of conditions are known, which are beyond their limits, and which are not known."""
    seen = [one for line in report.lines for one in line.row.conditions]
    known, over = {one.kind for one in seen}, {one.kind for one in seen if one.beyond}
    if not known:
        return
    on_gpus = known - ON_HOST - _ONLY_IF_FOUND
    judged = [kind for kind in LIMITS if kind != "power cap" and kind not in _ONLY_IF_FOUND]
    unknown = [kind for kind in judged if kind not in known and (on_gpus or kind in ON_HOST)]
    of = len(known - {"power cap"})
    told = f"{of - len(over)} of {of} kinds within their limits"
    beyond = f"; beyond them: {', '.join(sorted(over))}" if over else ""
    more = f"{beyond}; not known: {', '.join(unknown)}" if unknown else beyond
    yield Fact("conditions", f"{told}{more}", "fair" if over or unknown else "plain")
    caps = [one.value for one in seen if one.kind == "power cap" and one.value]
    if caps:
        share = f"{min(1.0, max(caps)):.0%} of a window"
        yield Fact("conditions", f"at the power limit for up to {share}, which is normal under load")


def _reference(report: Report) -> Iterator[Fact]:
    """What was compared with reference traces, how strong those are, and what lacks a reference."""
    rows = [(name_of_row(line.scored.test), line.row.reference) for line in report.lines if line.row.reference]
    if rows:
        compared = any(sentence.startswith(COMPARED) for _, sentences in rows for sentence in sentences)
        yield Fact("reference traces", told(rows), "plain" if compared else "faint")


def isolation_fact(report: Report) -> Fact:
    """How the tenants were isolated."""
    if report.isolated:
        return Fact("isolation", "full", "good")
    if report.summary.units == "classic":
        return Fact("isolation", "not recorded (milabench 2020)", "fair")
    return Fact("isolation", f"NOT ISOLATED ({report.isolation})", "bad")


_GROUPS = 4
"""How many kinds of missing references are named; the rest are counted."""


def told(rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """How many tests were compared, how strongly, and what the others lack.

    ``rows``: tests by name, each with the sentences of its launches. A test is as strong as its weakest launch. Tests
    with strong traces are counted, others named; older summaries do not record the strength.
    """
    by_strength: dict[str, list[str]] = defaultdict(list)
    lacking: dict[str, list[str]] = defaultdict(list)
    for test, sentences in rows:
        compared = [sentence for sentence in sentences if sentence.startswith(COMPARED)]
        if compared:
            by_strength[_weakest(compared)].append(test)
        for sentence in sentences:
            if sentence not in compared:
                lacking[sentence].append(test)
    classes = ", ".join(
        f"{len(tests)} {name}" if name == "strong" else f"{len(tests)} {name} ({', '.join(tests)})"
        for name in STRENGTHS
        if (tests := by_strength.get(name))
    )
    number = sum(len(tests) for tests in by_strength.values())
    said = [f"{number} of {counted(len(rows), 'test')} compared{classes and f': {classes}'}"]
    said += [f"{sentence}: {', '.join(tests)}" for sentence, tests in list(lacking.items())[:_GROUPS]]
    others = dict.fromkeys(test for tests in list(lacking.values())[_GROUPS:] for test in tests)
    if others:
        said.append(f"{counted(len(others), 'other')} without a reference")
    return "; ".join(said)


def _weakest(sentences: Iterable[str]) -> str:
    names = [sentence.removeprefix(COMPARED).removeprefix(": ") for sentence in sentences]
    return max(names, key=lambda name: (*STRENGTHS, name).index(name))

"""The named statements of a report; the format modules only lay them out. Pure.

`header` is the first screen: what a decision needs, in the order of the questions. A line without data says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from milabench_ng.report.launch.host_paces import Paces
from milabench_ng.report.launch.traces import COMPARED
from milabench_ng.report.render.cells import NOT_MEASURED, Fact, Tone, counted, figure
from milabench_ng.report.render.choices_told import choices_told, devices_told
from milabench_ng.report.render.columns import half_width_pct
from milabench_ng.report.render.ratio_statements import ABSENT, dollars, ratio_text, ratios, ratios_of_scores
from milabench_ng.report.render.slow_devices_told import slow_devices
from milabench_ng.report.render.traces_told import told
from milabench_ng.report.report import Report
from milabench_ng.report.scoring.comparison import SubRatio
from milabench_ng.report.scoring.failure_rate import FAILURE_LIMIT
from milabench_ng.report.scoring.score import Score
from milabench_ng.report.scoring.subsets import SubScore
from milabench_ng.report.statistics.effects import RANKED_FROM
from milabench_ng.report.summary.power import lost_samples, power_doubts
from milabench_ng.report.summary.summary import Summary
from milabench_ng.stats import median
from milabench_ng.units import format_seconds

NOT_COMPARABLE = "NOT COMPARABLE"
MANY_REPEATS = "over many repeats"


def header(report: Report) -> tuple[Fact, ...]:
    """The first screen."""
    summary = report.summary
    facts = [
        *_rules(report),
        *alarms(report),
        Fact("suite", f"{summary.suite}   ({report.source})", "strong"),
        devices_told(report),
        *_node(report),
        isolation_fact(report),
        _launches(report),
        *_score_interval(report),
        *choices_told(report),
        *ratios(report),
        *_parts(report),
        _spread("spread of runs", [line.scored.run_to_run_pct for line in report.lines], "one repeat"),
        _spread("spread of devices", [line.scored.between_devices_pct for line in report.lines], "one device"),
        *slow_devices(report),
        _host_pace(report.summary.host_pace),
        *_conditions(report),
        *dollars(report),
        _attempts(report),
    ]
    return (*facts, *(Fact("note", note, "fair") for note in summary.notes))


def _rules(report: Report) -> list[Fact]:
    """The very first line: whether the rest can be trusted."""
    found = report.verification
    return [] if found is None else [Fact("rules", found.sentence, "good" if found.passed else "bad")]


def _node(report: Report) -> list[Fact]:
    """The machine around the devices, which sets the pace of many tests."""
    known = report.summary.provenance.node
    return [Fact("node", "; ".join(f"{name} {value}" for name, value in known.items()))] if known else []


def alarms(report: Report) -> list[Fact]:
    """The worst news first: what failed, and why the numbers are not comparable."""
    rate, score = report.failure_rate, report.score
    facts: list[Fact] = []
    if rate.fail:
        causes = Counter(failed.cause for _, failed in report.failed)
        causes["unreadable"] += len(report.summary.problems)
        named = ", ".join(f"{count} {cause}" for cause, count in causes.items() if count)
        failed = f"{rate.fail} of {rate.n} launches failed ({named}), limit {FAILURE_LIMIT:.2%}"
        facts.append(Fact("failed", failed, "fair") if rate.passed else Fact("FAIL", failed, "bad"))
    if report.summary.going_on:
        facts.append(Fact("running", _progress(report.summary), "fair"))
    elif score is not None and score.status == "invalid":
        facts.append(Fact("NO SCORE", _why_invalid(score), "bad"))
    return facts + [Fact(NOT_COMPARABLE, mark.counted(len(report.lines)), "bad") for mark in report.marks]


def _progress(summary: Summary) -> str:
    """How far a run in progress is, and what is left of it."""
    rows = summary.tests.values()
    planned, pending = sum(row.planned or 0 for row in rows), sum(row.pending for row in rows)
    left = "" if summary.left_s is None else f", about {format_seconds(summary.left_s)} left"
    return f"{planned - pending} of {planned} launches{left}"


def _score_interval(report: Report) -> list[Fact]:
    """The score, what it comes to over many repeats, and how well that is known."""
    score = report.score
    if score is None or score.per_device is None:
        if score and report.summary.going_on:
            return [Fact("score", "not yet: the run goes on", "fair")]
        return [Fact("score", "invalid: see the first lines" if score else "none: no weights", "bad")]
    name = _score_name(report)
    tone: Tone = "bad" if report.marks else "strong"
    text = f"{figure(score.per_device)} {score.unit} per device ({score.status})"
    if score.interval is None:
        return [Fact(name, f"{text}; no interval: {score.why}", tone if report.marks else "fair")]
    at = score.interval
    few = f"; under {RANKED_FROM} repeats too little is charged for spread" if at.n < RANKED_FROM else ""
    needed = "over 1000" if score.repeats_needed is None else str(score.repeats_needed)
    expected = f"{figure(at.value)} [{figure(at.low)}, {figure(at.high)}], 95 %; RPP and ratios of scores rest on it"
    return [
        Fact(name, text, tone),
        Fact(MANY_REPEATS, expected),
        Fact("rests on", f"{at.n} repeats, {report.coverage}{few}; +-1 % takes {needed} repeats at this spread"),
    ]


def _score_name(report: Report) -> str:
    """A score over some of the tests, or of a marked run, is never called *the* score."""
    partial = report.score is not None and report.score.status != "complete"
    return f"{'partial score' if partial else 'score'}{f', {NOT_COMPARABLE}' if report.marks else ''}"


def _parts(report: Report) -> list[Fact]:
    """The score without some of its parts, one line each."""
    facts = []
    for part in report.sub_scores:
        if part.per_device is None:
            facts.append(Fact(part.name, f"{ABSENT} ({part.why})", "fair"))
            continue
        width = half_width_pct(part.interval)
        interval = "" if width is None else f" +-{width:.1f} %"
        against = "".join(
            f"; {ratio_text(ratio)} of {other.name}{_over(ratio, part)}"
            for other in report.comparisons
            for ratio in other.subsets
            if ratio.name == part.name and ratio.ratio is not None
        )
        text = f"{figure(part.per_device)} {report.score_unit}{interval} ({counted(len(part.labels))}{against})"
        facts.append(Fact(part.name, text))
    return facts


def _over(ratio: SubRatio, part: SubScore) -> str:
    """The number of tests, if a ratio covers other tests than the score next to it."""
    return "" if ratio.labels == part.labels else f" over {len(ratio.labels)}"


def _spread(name: str, values: Sequence[float | None], lacking: str) -> Fact:
    known = [value for value in values if value is not None]
    if not known:
        return Fact(name, f"{ABSENT} ({lacking})", "faint")
    return Fact(name, f"{median(known):.1f} % in the middle of {len(known)} tests, up to {max(known):.1f} %")


def _host_pace(found: Paces | None) -> Fact:
    """How fast the tenants' cores were, and whether that was constant over time and devices."""
    if found is None:
        return Fact("host pace", ABSENT, "faint")
    return Fact("host pace", found.sentence, "bad" if found.slow else "fair" if found.uneven else "plain")


def _conditions(report: Report) -> list[Fact]:
    """The data, and everything that makes results not comparable."""
    facts = []
    data = dict.fromkeys(entry for line in report.lines for entry in line.row.data)
    if data:
        facts.append(Fact("data", "; ".join(f"{d.name} ({d.kind}, scale {d.scale:g}, {d.cache} cache)" for d in data)))
    if not report.penalize_variance:
        facts.append(Fact("variance", "not penalised", "fair"))
    if not report.marks:
        recorded = report.summary.units == "true"
        facts.append(Fact("conditions", "no launch has a mark", "good") if recorded else Fact("conditions", ABSENT))
    rows = {line.scored.test: line.row for line in report.lines}
    facts += [Fact("telemetry", text, "fair") for text in lost_samples(rows)]
    facts += [Fact("power", text, "fair") for text in power_doubts(rows)]
    facts += _reference(report)
    kinds = Counter(flag.kind for _, flag in report.flags)
    if kinds:
        facts.append(Fact("odd launches", ", ".join(f"{count} {kind}" for kind, count in kinds.items()), "fair"))
    return facts


def _reference(report: Report) -> list[Fact]:
    """What was compared with reference traces, how strong those are, and what lacks a reference."""
    rows = [(line.scored.test.partition(".")[2], line.row.reference) for line in report.lines if line.row.reference]
    if not rows:
        return []
    compared = any(sentence.startswith(COMPARED) for _, sentences in rows for sentence in sentences)
    return [Fact("reference traces", told(rows), "plain" if compared else "faint")]


def _attempts(report: Report) -> Fact:
    rate = report.failure_rate
    if rate.rate is None:
        return Fact("attempts", ABSENT, "fair")
    causes = Counter(failed.cause for _, failed in report.failed)
    named = "".join(f", {count} {cause}" for cause, count in causes.items())
    return Fact("attempts", f"{rate.n} launches, {rate.fail} failed{named}", "good" if rate.fail == 0 else "bad")


def isolation_fact(report: Report) -> Fact:
    """How the tenants were isolated."""
    if report.isolated:
        return Fact("isolation", "full", "good")
    if report.summary.units == "classic":
        return Fact("isolation", "not recorded (2020)", "fair")
    return Fact("isolation", f"NOT ISOLATED ({report.isolation})", "bad")


def _launches(report: Report) -> Fact:
    rows = report.summary.tests.values()
    n = sum(row.n - row.missing for row in rows)
    if not report.summary.has_plan:
        return Fact("launches", f"{n} (what was planned is not recorded)")
    planned = sum(row.planned or 0 for row in rows)
    missing, pending = sum(row.missing for row in rows), sum(row.pending for row in rows)
    done = planned - missing - pending
    again = f" ({n - done} more records than planned launches)" if n > done else ""
    if pending:
        return Fact("launches", f"partial: {done} of {planned} launches so far{again}", "fair")
    if missing:
        return Fact("launches", f"{done} of {planned}: {missing} without a record{again}", "bad")
    fail = report.failure_rate.fail
    return Fact(
        "launches", f"{done} of {planned}{f', {fail} failed' if fail else ''}{again}", "bad" if fail else "good"
    )


def conclusion(report: Report) -> tuple[Fact, ...]:
    """Failure rate, score, ratio, price."""
    return (*_failure_rate(report), *_score(report), *ratios_of_scores(report), *_price(report))


def _failure_rate(report: Report) -> list[Fact]:
    rate = report.failure_rate
    if rate.rate is None:
        return [Fact("failure rate", NOT_MEASURED)]
    verdict = "PASS" if rate.passed else "FAIL"
    text = f"{rate.rate:.2%} ({verdict}: {rate.fail} of {rate.n} launches failed, limit {FAILURE_LIMIT:.2%})"
    return [Fact("failure rate", text, "good" if rate.passed else "bad")]


def _score(report: Report) -> list[Fact]:
    score = report.score
    if score is None:
        return [Fact("score", f"none: no weights for suite {report.summary.suite!r}; give --weights FILE", "fair")]
    if score.per_device is None or score.per_node is None:
        why = "not yet: the run goes on" if report.summary.going_on else f"invalid ({_why_invalid(score)})"
        return [Fact("score", why, "fair" if report.summary.going_on else "bad")]
    reasons = "; ".join(score.reasons)
    complete = score.status == "complete"
    state = "complete" if complete else f"partial ({score.tests} of {score.of} tests): {reasons}"
    tone: Tone = "bad" if report.marks else "strong" if complete else "fair"
    name = _score_name(report)
    return [
        Fact(f"{name} per device", f"{figure(score.per_device)} {score.unit}, {state}", tone),
        Fact(f"{name} per node", f"{figure(score.per_node)} {score.unit} ({score.devices} devices)", tone),
    ]


def _why_invalid(score: Score) -> str:
    if not score.missing:
        return "no test with a weight has a result"
    return f"{len(score.missing)} of {score.expected} missing: {', '.join(score.missing)}"


def _price(report: Report) -> list[Fact]:
    price = report.price
    if price is None:
        return []
    facts = [Fact("price", f"{price.amount:,.2f} $ per {price.per}")]
    if price.rpp is None:
        return [*facts, Fact("RPP", f"{NOT_MEASURED} (there is no score above 0)", "bad")]
    doubt = f" ({report.score.status} score)" if report.score and report.score.status != "complete" else ""
    at = price.interval
    width = f" [{figure(at.low)}, {figure(at.high)}]" if at else ""
    basis = " over many repeats" if at else ""
    text = f"{figure(price.rpp)}{width} $ per {report.score_unit}{basis}, lower is better{doubt}"
    return [*facts, Fact("RPP", text, "fair" if doubt else "strong")]

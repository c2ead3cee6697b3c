"""Why the numbers of a report may not be what they seem, the worst first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.failure_rate import FAILURE_LIMIT
from milabench_ng.analysis.scoring.score import Score, launches_left
from milabench_ng.analysis.scoring.scored import ONE_AFTER_ANOTHER
from milabench_ng.analysis.statistics.intervals import RANKED_FROM
from milabench_ng.analysis.summary.summary import Summary, name_of_row
from milabench_ng.model.plain import names_of, plain, quoted
from milabench_ng.model.shipped import names
from milabench_ng.model.units import counted, format_seconds
from milabench_ng.present.render.cells import NAMED, Fact, brief, covered, device_word, rows_told
from milabench_ng.present.render.choices_told import choices_told, devices_told
from milabench_ng.report.report import Report

NOT_COMPARABLE = "NOT COMPARABLE"
_NO_PLAN = (
    "there is no run.json, so it is unknown what was planned and whether the results are comparable. Give the whole "
    "result folder"
)


def alarms(report: Report) -> tuple[Fact, ...]:
    """What failed, why the numbers are not comparable or not judged, and which choices were made."""
    return _by_consequence(_alarms(report))


def alarms_of_launches(report: Report) -> tuple[Fact, ...]:
    """Those that hold whatever is made of the rates: the columns of a public suite have neither score nor rank."""
    return _by_consequence((*_run(report), *_marks(report)))


def _by_consequence(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """What makes numbers wrong, what keeps them from a decision (in capitals), then what is only to be known."""
    return tuple(sorted(facts, key=lambda fact: (fact.tone != "bad", not fact.name.isupper())))


def _alarms(report: Report) -> Iterator[Fact]:
    yield from _run(report)
    if not report.summary.going_on:
        yield from _named(report, _score)
    yield from _marks(report)
    yield from _named(report, _indications)
    yield from _named(report, _not_ranked)
    yield from _named(report, _another_day)
    if not report.penalize_variance:
        yield Fact("variance", "no penalty applied (--no-penalize-variance)", "fair")
    yield from devices_told(report)
    yield from (fact for fact in choices_told(report) if fact.tone != "plain")
    if merged := report.summary.merged_sessions:
        yield Fact("sessions", merged, "fair")


def _named(report: Report, facts: Callable[[Report], Iterator[Fact]]) -> Iterator[Fact]:
    """The facts on each score; of several suites, with the suite's name."""
    for part in report.scored:
        for fact in facts(part):
            text = f"{part.summary.suite}: {fact.text}" if report.suites else fact.text
            yield Fact(fact.name, text, fact.tone)


def _run(report: Report) -> Iterator[Fact]:
    """Broken rules, damage, and what was not run, failed or is still to come."""
    found = report.verification
    if found is not None and not found.passed:
        yield Fact("RULES BROKEN", found.sentence.removeprefix("FAIL: ").replace(" broken (", " (", 1), "bad")
    if report.damage:
        more = f", and {len(report.damage) - 1} more" if len(report.damage) > 1 else ""
        trust = f"Do not trust these numbers. For all of it, run mnb verify {quoted(report.source)}"
        yield Fact("DAMAGED", f"{report.damage[0]}{more}. {trust}", "bad")
    for doubt in found.doubts if found is not None else ():
        yield Fact("doubt", f"{doubt.title}: {doubt.reasons[0]}; {doubt.ask}", "fair")
    yield from _mismatches(report)
    yield from _failures(report)
    if report.unplanned:
        yield Fact("NO PLAN", _NO_PLAN, "fair")
    if report.summary.going_on:
        yield Fact("running", _progress(report.summary), "fair")


def _mismatches(report: Report) -> Iterator[Fact]:
    """Results that are not what they must be, with their devices."""
    found = [(test, failed.detail) for test, failed in report.failed if failed.cause == "mismatch"]
    for test, detail in found[:NAMED]:
        yield Fact("MISMATCH", f"{name_of_row(test)}: {plain(detail)}", "bad")
    if len(found) > NAMED:
        yield Fact("MISMATCH", f"in {counted(len(found) - NAMED, 'more launch')}", "bad")
    for known in report.known_answers:
        if known.other:
            rows = ", ".join(map(name_of_row, known.other))
            text = (
                f"{rows}: another result than in {plain(known.name)}, from the same work, software and kind of device"
            )
            yield Fact("MISMATCH", text, "bad")


def _marks(report: Report) -> Iterator[Fact]:
    """Why the launches are not comparable."""
    yield from (Fact(NOT_COMPARABLE, mark.counted(len(report.lines)), "bad") for mark in report.marks)
    yield from _isolation(report)


def _failures(report: Report) -> Iterator[Fact]:
    rate, left = report.failure_rate, report.not_tried
    if left:
        planned = sum(row.planned or 0 for row in report.summary.tests.values())
        name = "BETWEEN SESSIONS" if report.summary.between_sessions else "INTERRUPTED"
        saved = len(report.waiting.launches) if report.waiting else 0
        if report.waiting:
            text = f"the results of {saved} of {planned} launches wait in {plain(report.waiting.place)}"
            yield Fact("NOT SAVED", text, "fair")
        if left > saved:
            yield Fact(name, f"{left - saved} of {planned} launches have not run yet", "fair")
    if rate.fail:
        causes = Counter(failed.cause for _, failed in report.failed)
        causes["unreadable"] += len(report.summary.problems)
        named = ", ".join(f"{count} {cause}" for cause, count in causes.items() if count)
        what = "without a record" if set(+causes) == {"missing"} else f"failed ({named})"
        beyond = rate.exceeds(FAILURE_LIMIT)
        least = f"failure rate at least {rate.least:.2%} (95% confidence), limit {FAILURE_LIMIT:.2%}"
        gone = report.folder.gone if report.folder else ()
        taken = f" (recorded, but gone: {names_of(gone, 1)})" if gone else ""
        text = f"{rate.fail} of {rate.n} launches {what}{taken}: {least}"
        yield Fact("FAIL", text, "bad") if beyond else Fact("failed", text, "fair")


def _score(report: Report) -> Iterator[Fact]:
    """Why a score is invalid or not the whole one; suites without weights have none by design."""
    score = report.score
    if score is None:
        return
    if score.status == "invalid":
        yield Fact("NO SCORE", _why_invalid(report, score), "fair" if report.not_tried else "bad")
    elif score.status == "partial":
        yield Fact("PARTIAL", "; ".join(score.reasons), "fair")
    if score.own_reference:
        text = f"the score is in units of this run itself ({score.unit}), and says nothing about other nodes"
        yield Fact("own reference", text, "fair")
    if score.reference_devices is not None:
        yield Fact("other size", _other_size(report.summary, score.reference_devices), "fair")


def _progress(summary: Summary) -> str:
    """How far a run in progress is, and what is left of it."""
    rows = summary.tests.values()
    planned, pending = sum(row.planned or 0 for row in rows), sum(row.pending for row in rows)
    left = "" if summary.left_s is None else f", about {format_seconds(summary.left_s)} left"
    return f"{planned - pending} of {planned} launches{left}"


def _why_invalid(report: Report, score: Score) -> str:
    """Which tests are missing; one without a weight is not of the weighted tests, and makes the score invalid too."""
    if not score.missing:
        return "no weighted test has a result"
    without = {line.scored.test for line in report.lines if not line.scored.weight}
    weighted = [label for label in score.missing if label not in without]
    others = [label for label in score.missing if label in without]
    left = {label: why for label in weighted if (why := launches_left(report.summary, label))}
    unlike = report.summary.has_plan and report.choices.profiles
    gone = [label for label in weighted if unlike and label not in report.summary.tests]
    absent = [label for label in weighted if label not in left and label not in gone]
    of, found = counted(score.of, "weighted test"), []
    if gone:
        other = f"not in the profile of this run, which differs from the shipped {report.summary.suite}"
        found.append(f"{len(gone)} of {of} {other}: {rows_told(gone)}")
    if absent:
        found.append(f"{len(absent)} of {of} missing: {rows_told(absent)}")
    if left:
        told = names_of([f"{name_of_row(label)} ({why} missing)" for label, why in left.items()], NAMED)
        found.append(f"{len(left)} of {of} incomplete: {told}")
    if others:
        found.append(f"{counted(len(others), 'planned test')} without weight missing: {rows_told(others)}")
    if score.omitted:
        found.append(f"{len(score.omitted)} not selected")
    return "; ".join(found)


def _other_size(summary: Summary, devices: int) -> str:
    """What a score says of a node whose reference has another number of ``devices``."""
    word = device_word(summary)
    return (
        f"the score's reference node has {counted(devices, word)}, and this node has {summary.devices}. "
        f"Compare only with scores of nodes with {counted(summary.devices, word)}"
    )


def _isolation(report: Report) -> Iterator[Fact]:
    if report.not_isolated and report.summary.units == "true":
        yield Fact("NOT ISOLATED", f"the weakest isolation of a launch is {report.isolation}", "bad")


def _indications(report: Report) -> Iterator[Fact]:
    """Which comparisons are only indicative, over which tests, and why."""
    for other in report.comparisons:
        if other.other_rates:
            yield Fact("OTHER RATES", _on_other_rates(report, other), "fair")
        if other.estimates:
            why = f", {_on_estimates(other)}"
        elif other.indicative and other.counted:
            why = f"; {', '.join(other.indicative)}"
        else:
            continue
        yield Fact("APPROXIMATE", f"vs {brief(other)}: {covered(other)}{why}", "fair")


def _on_other_rates(report: Report, other: Comparison) -> str:
    """What to do about a baseline that says to be this run; only what has records can be verified."""
    sources = [quoted(name) for name in (report.source, other.name) if not name.endswith(".json")]
    ask = f"Run {' and '.join(f'mnb verify {name}' for name in sources)}" if sources else "Ask for the bundles of both"
    rates = counted(len(other.other_rates), "rate")
    return f"vs {brief(other)}: the same run, by its id, with {rates} changed, unless one has more launches. {ask}"


def _on_estimates(other: Comparison) -> str:
    """On how many factors it rests, and where a measured comparison is possible."""
    factors = "one factor" if len(other.estimates) == 1 else f"{len(other.estimates)} factors"
    others = [name for name in names("baselines") if name.endswith(f"-{brief(other)}")]
    where = f"; measured comparisons: {', '.join(others)}" if others else ""
    return f"based on {factors} ({', '.join(other.estimates)}): not a measurement{where}"


def _another_day(report: Report) -> Iterator[Fact]:
    if report.another_day_pct is not None:
        few = "one session" if report.summary.sessions == 1 else f"{report.summary.sessions} sessions"
        yield Fact(few, f"a run on another day may differ by {report.another_day_pct:.1f}%", "plain")


def _not_ranked(report: Report) -> Iterator[Fact]:
    score = report.score
    if score is None or score.per_device is None:
        return
    if score.why == ONE_AFTER_ANOTHER:
        yield Fact("NO VERDICT", f"{score.why}; a verdict needs all tests in turn, as without --order", "fair")
    elif score.interval is None:
        few = f"only {counted(score.repeats.n, 'repeat')}" if score.repeats else score.why
        yield Fact("NO VERDICT", f"{few}; a verdict needs at least {RANKED_FROM}", "fair")

"""The first screen of a report: what a decision needs, in the order of the questions. Pure.

Terminal, Markdown and page lay out the same values: is it valid, what was measured, what is it worth, what next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from milabench_ng.analysis.scoring.compare import ESTIMATED
from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.cost import PerReference
from milabench_ng.analysis.scoring.neighbours import (
    MeanSlowdown,
    Slowdown,
    cost_of_neighbours,
    worth_of_fence,
)
from milabench_ng.analysis.scoring.reference import CLASSIC_UNIT, unit_told
from milabench_ng.analysis.scoring.score import Score
from milabench_ng.analysis.scoring.subsets import OF_GROUP
from milabench_ng.analysis.statistics.effects import unusual
from milabench_ng.model.shipped import names
from milabench_ng.model.units import counted, four_digits
from milabench_ng.present.render.alarms import alarms
from milabench_ng.present.render.cells import Answer, Fact, brief, covered, device_word, money, toned
from milabench_ng.present.render.columns import span
from milabench_ng.present.render.energy_told import points_per_kwh
from milabench_ng.present.render.look_at import look_at
from milabench_ng.present.render.next_step import next_step
from milabench_ng.present.render.ratio_statements import span_of_money, why_no_interval, why_no_ratio
from milabench_ng.present.render.stress_answers import stress_answers
from milabench_ng.present.render.verification_tables import verdict_fact
from milabench_ng.report.report import NOT_RECORDED, Report

_BOUND_BY = "bound by "
BY_BOTTLENECK = "By bottleneck"
DETAILS = "details"
"""The line with the command that prints everything."""


class KindRatio(msgspec.Struct, frozen=True):
    """The ratio to the first baseline over the tests that one thing bounds."""

    name: str
    ratio: float


class FirstScreen(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on it, in order."""

    title: str
    when: str
    """When the first launch started, in UTC."""
    rules: tuple[Fact, ...]
    """The verdict on the rules that were given, if all are met; broken ones are an alarm."""
    alarms: tuple[Fact, ...]
    """Why the numbers may not be what they seem, worst first."""
    step: tuple[Fact, ...]
    """What to do next; empty if nothing is left to do."""
    answers: tuple[Answer, ...]
    look: tuple[Fact, ...]
    """Where to look: devices, tests, processors."""
    kinds: tuple[KindRatio, ...]
    against: str
    """The baseline of ``kinds``, as ``vs v100``."""
    commands: tuple[Fact, ...]
    """Where the rest is."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All of it as statements, for forms without a layout of their own."""
        ratios = ", ".join(f"{kind.name} {kind.ratio:.2f}" for kind in self.kinds)
        kinds = Fact(BY_BOTTLENECK, f"{self.against}: {ratios}")
        return (
            *self.rules,
            *self.alarms,
            *self.step,
            *(answer.fact for answer in self.answers),
            *(Fact("Look at", fact.text, fact.tone) for fact in self.look),
            *((kinds,) if self.kinds else ()),
            *self.commands,
        )


def first_screen(report: Report) -> FirstScreen:
    return FirstScreen(
        title=f"mnb · {report.summary.suite} · {report.source}",
        when=when(report),
        rules=tuple(_rules_met(report)),
        alarms=alarms(report),
        step=tuple(Fact("next", step) for step in (next_step(report),) if step),
        answers=tuple(_answers(report)),
        look=tuple(look_at(report)),
        kinds=_kinds(report),
        against=", ".join(f"vs {brief(other)}" for other in report.comparisons),
        commands=tuple(_commands(report)),
    )


def when(report: Report) -> str:
    """The start of the first launch; baselines may not have it."""
    starts = [line.row.started_utc for line in report.lines if line.row.started_utc is not None]
    if not starts:
        return "date not recorded" if report.has_launches else "no launch has finished"
    return f"{min(starts):%Y-%m-%d %H:%M} UTC"


def _rules_met(report: Report) -> Iterator[Fact]:
    found = report.verification
    if found is not None and found.passed:
        yield msgspec.structs.replace(verdict_fact(found), name="Rules")


def _answers(report: Report) -> Iterator[Answer]:
    known = report.summary.provenance.node
    around = (known[name] for name in ("processors", "memory") if name in known)
    yield Answer(name="Node", parts=(report.summary.provenance.hardware, *around))
    for part in report.scored:
        yield from _worth_of(part, f" {part.summary.suite}" if report.suites else "")
    if report.neighbours:
        yield _neighbours(report.neighbours)
    if (worth := worth_of_fence(report.fence_gains)) is not None:
        times = f"{worth.value:.2f}x{_around(worth, '{:.2f}'.format)}"
        yield Answer(name="Isolation benefit", parts=(times, counted(worth.cells, "test")))
    yield from stress_answers(report)
    yield _valid(report)


def _worth_of(report: Report, suite: str) -> Iterator[Answer]:
    """Ratios, score, sub-scores and price; ``suite`` follows their names."""
    for answer in _answers_on_score(report):
        yield msgspec.structs.replace(answer, name=f"{answer.name}{suite}")


def _answers_on_score(report: Report) -> Iterator[Answer]:
    for other in report.comparisons:
        yield _versus(report, other)
    if report.score is not None or report.summary.suite not in names("profiles"):
        yield _score(report)
    parts = [part for part in report.sub_scores if part.name.startswith(OF_GROUP) and part.per_device is not None]
    if parts:
        told = (f"{part.name.removeprefix(OF_GROUP)} {four_digits(part.per_device or 0.0)}" for part in parts)
        yield Answer(name="Parts", parts=tuple(told))
    if report.price is not None:
        yield _price(report)
    if report.tariff is not None:
        yield _electricity(report)


def _score(report: Report) -> Answer:
    score = report.score
    if score is None:
        return Answer(name="Score", parts=(_no_weights(report.summary.suite),), tone="fair")
    if score.per_device is None or score.per_node is None:
        later = _later(report)
        why = f"not yet: {later}" if later else "invalid"
        return Answer(name="Score", parts=(why,), tone="fair" if later else "bad")
    if score.status == "partial":
        told = f"no score: {_why_partial(score)}"
        told = told if report.comparisons else f"{told}. Compare with another result instead (--compare)"
        return Answer(
            name="Score", parts=(f"partial: {score.tests} of {counted(score.of, 'weighted test')}", told), tone="fair"
        )
    unit, at = unit_told(score.unit), score.interval
    few = score.repeats
    fewer = any(other.status == "partial" for other in report.comparisons)
    return Answer(
        name="Score",
        parts=(
            f"{four_digits(score.per_device)} {unit} per {device_word(report.summary)}",
            f"{four_digits(score.per_node)} per node",
            *((f"all {counted(score.tests, 'test')}, comparable or not, less penalties",) if fewer else ()),
            *((f"95%: {four_digits(at.low)} to {four_digits(at.high)}",) if at else ()),
            *((f"{few.n} repeats: {four_digits(few.low)} to {four_digits(few.high)}",) if few else ()),
        ),
        tone="bad" if report.marks else "strong",
    )


def _why_partial(score: Score) -> str:
    """Why a score is not of all weighted tests, and so has no value: over others, it is a number of another kind."""
    if score.omitted:
        return "only some tests ran"
    if score.tests == score.of:
        return "the plan is unknown"
    others = counted(score.of - score.tests, "test")
    if score.unit == CLASSIC_UNIT:
        return f"the items of {others} are unknown"
    return f"{others} did other work than the reference"


def _no_weights(suite: str) -> str:
    """Of a profile of one's own: shipped suites without weights, such as studies of neighbors, have none by design."""
    return (
        f"suite {suite!r} has no official weights, so there is no score. Use the per-test rates, or pass --weights FILE"
    )


def _later(report: Report) -> str:
    """Why there is more to come; empty if there is not."""
    if report.summary.going_on:
        return "the run is still in progress"
    if not report.not_tried:
        return ""
    return "there are more sessions" if report.summary.between_sessions else "the run was interrupted"


def _versus(report: Report, other: Comparison) -> Answer:
    """The ratio of the throughputs, and the verdict on it."""
    name = f"vs {brief(other)}"
    if other.ratio is None or other.ratio_per_node is None:
        return Answer(name=name, parts=(why_no_ratio(report, other),), tone="fair")
    word, known = device_word(report.summary), other.effect.ratio
    ours = report.summary.devices
    alike = other.devices == ours
    of_node = f"{other.ratio_per_node:.3f} per node ({counted(ours, word)} vs. {other.devices})"
    margin = unusual(other.margin)
    verdict = other.effect.verdict if known else ESTIMATED if other.estimates else _no_interval(why_no_interval(other))
    if other.same_run:
        verdict = "the same run with other rates" if other.other_rates else "the run itself"
    return Answer(
        name=name,
        parts=(
            f"{other.ratio:.3f} per {word}{' and per node' if alike else ''}",
            *((span(known) or "",) if known else ()),
            *((f"{few.n} repeats: {few.low:.3f} to {few.high:.3f}",) if (few := other.repeats) else ()),
            *(() if alike else (of_node,)),
            covered(other) if other.tests == other.of else f"only comparable work: {covered(other)}",
            f"{verdict}, {margin}" if margin else verdict,
        ),
        tone=_VERDICT_TONE(other.effect.verdict),
    )


_VERDICT_TONE = toned({"better": "good", "worse": "bad", "equivalent": "strong"}, "fair")


def _price(report: Report) -> Answer:
    price = report.price
    assert price is not None
    amount = f"${money(price.amount)} per {'GPU' if price.per == 'gpu' else 'node'}"
    known_as = {other.name: brief(other) for other in report.comparisons}
    worths = tuple(_worth(each, known_as[each.name]) for each in price.per_reference)
    if report.score is not None and report.score.status == "partial":
        why = f"no price per point: {_why_partial(report.score)}"
        return Answer(name="Price", parts=(amount, *(worths or (why,))))
    if price.rpp is None:
        return Answer(name="Price", parts=(amount, "no price per point: there is no score above 0"), tone="bad")
    unit = unit_told(report.score_unit).removesuffix("s")
    width = f" [{four_digits(price.interval.low)}, {four_digits(price.interval.high)}]" if price.interval else ""
    return Answer(name="Price", parts=(amount, f"${four_digits(price.rpp)} per {unit}{width}", *worths))


def _electricity(report: Report) -> Answer:
    """What the work of the score costs, within the widest boundary that is metered."""
    if not report.energy_costs:
        return Answer(name="Energy", parts=("the power of the weighted tests is not known",), tone="fair")
    at = report.energy_costs[-1]
    parts = [f"{at.kilowatts:.3g} kW ({at.boundary})", *points_per_kwh(report, at)]
    if at.per_hour is not None:
        parts.append(f"${at.per_hour:.3g} per hour")
    if at.per_point_year is not None:
        unit = unit_told(report.score_unit).removesuffix("s")
        parts.append(f"${four_digits(at.per_point_year)} per {unit} and year")
    return Answer(name="Energy", parts=tuple(parts))


def _worth(price: PerReference, name: str) -> str:
    known = f" {span_of_money(price.interval)}" if price.interval else ""
    return f"${money(price.value)} per {name}-node equivalent{known}{' (approximate)' if price.indicative else ''}"


def _neighbours(cells: Sequence[Slowdown]) -> Answer:
    """What the others cost a packed test, and the worst pair that is beyond doubt, else the worst that was seen."""
    cost, sure = cost_of_neighbours(cells), [cell for cell in cells if cell.sure]
    worst = max(sure or cells, key=lambda cell: cell.value)
    thin = [cell for cell in cells if cell.not_judged]
    few = f"{len(thin)} of {len(cells)} {thin[0].not_judged}, " if thin else ""
    doubtful = f"{thin[0].not_judged}, " if len(thin) == len(cells) else f"none significantly slower, {few}"
    pair = f"{worst.name}, {worst.value:.2f}x slower"
    costs = f"the same test on all tenants costs {_slower(cost.value)}%{_around(cost, _slower)}" if cost else ""
    return Answer(
        name="Neighbors",
        parts=(
            *((costs,) if costs else ()),
            f"worst: {pair}" if sure else f"{doubtful}most: {pair}",
        ),
        tone="fair" if sure else "plain",
    )


def _slower(slowdown: float) -> str:
    """In percent."""
    return f"{100 * (slowdown - 1):.1f}"


def _no_interval(why: str) -> str:
    return f"no interval: {why}" if why else "no interval"


def _around(mean: MeanSlowdown, told: Callable[[float], str]) -> str:
    """Its interval, each end as it is ``told``."""
    at = mean.effect.ratio
    return f", {_no_interval(mean.effect.why)}" if at is None else f" (95%: {told(at.low)} to {told(at.high)})"


def _valid(report: Report) -> Answer:
    """What was planned and what came of it, and how the tenants were held."""
    summary, rate = report.summary, report.failure_rate
    rows = summary.tests.values()
    n, planned = rate.n, sum(row.planned or 0 for row in rows)
    lacking = sum(row.missing + row.pending for row in rows)
    good = sum(row.n - row.failures for row in rows)
    extra = (f"{good - planned} more records than launches",) if summary.has_plan and good > planned else ()
    done = (
        f"{min(good, planned)} of {planned} launches"
        if summary.has_plan
        else f"{counted(n, 'launch')} (no plan recorded)"
    )
    isolation = f"isolation {report.isolation}"
    if summary.units == "classic" and report.isolation == NOT_RECORDED:
        isolation = "isolation not recorded (milabench 2020)"
    if not report.has_launches:
        return Answer(name="Valid", parts=(done, "no launch has finished"), tone="fair")
    failed = f"{rate.fail} failed"
    clean = not report.marks and rate.fail == 0 and report.isolated and not lacking
    return Answer(
        name="Valid",
        parts=(done, *extra, failed, isolation),
        tone="good" if clean and not extra else "bad" if rate.fail or report.marks or extra else "fair",
    )


def _kinds(report: Report) -> tuple[KindRatio, ...]:
    """By what bounds the tests; nothing beside several baselines, whose ratios stand in the tables."""
    if len(report.comparisons) != 1:
        return ()
    parts = report.comparisons[0].subsets
    return tuple(
        KindRatio(part.name.removeprefix(_BOUND_BY), part.ratio)
        for part in parts
        if part.ratio is not None and part.name.startswith(_BOUND_BY)
    )


def _commands(report: Report) -> Iterator[Fact]:
    yield Fact(DETAILS, f"{report.command} --full", "faint")
    if not report.paged:
        yield Fact("page", f"{report.command} --html report.html", "faint")

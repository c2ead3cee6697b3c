"""Whether the delivered node keeps what the bid promised. Pure.

For each test and for the score: the ratio of the geometric means over the repeats, delivered over bid, with its
one-sided 95 % bounds (Welch on logarithms, see `intervals`). The ratio keeps the guarantee if the lower bound is above
it, and breaks it if the ratio is significantly below it, with p values adjusted for several tests by Holm's method.
Anything in between is inconclusive and needs more repeats. The test is against the guarantee itself, so no additional
margin is needed; and since the guarantee is kept only if all ratios keep it, that verdict needs no adjustment. With a
mark on either side, which makes a result not comparable, nothing keeps the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.report.scoring.failure_rate import FAILURE_LIMIT, failure_rate
from milabench_ng.report.scoring.score import log_ratio
from milabench_ng.report.scoring.scored import ScoredTest, scored_tests
from milabench_ng.report.scoring.weights import Weights, spread_unplanned
from milabench_ng.report.statistics.effects import RANKED_FROM, holm
from milabench_ng.report.statistics.intervals import LEVEL, Estimate, WeightedStat, combine, t_tail, why_none
from milabench_ng.report.summary.comparable import WorkDifference, differences
from milabench_ng.report.summary.marked import Marked, count_marks
from milabench_ng.report.summary.summary import Summary

GuaranteeVerdict = Literal["keeps", "breaks", "inconclusive"]


class GuaranteeRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio of a test or of the score, against the guarantee."""

    name: str
    ratio: float | None
    low: float | None
    """One-sided 95 % bound, as is ``high``."""
    high: float | None
    verdict: GuaranteeVerdict
    why: str = ""


class SideMark(msgspec.Struct, frozen=True, kw_only=True):
    """A mark that makes one side not comparable."""

    side: Literal["bid", "delivered"]
    mark: Marked


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The complete result."""

    guarantee: float
    score: GuaranteeRatio
    tests: tuple[GuaranteeRatio, ...]
    reasons: tuple[str, ...]
    """What else breaks the guarantee besides the ratios: failures, missing devices."""
    marks: tuple[SideMark, ...]
    """Marks on the tests in the bid."""
    differences: tuple[WorkDifference, ...]

    @property
    def verdict(self) -> GuaranteeVerdict:
        """Breaks if any part breaks it; keeps if all parts keep it and there is no mark."""
        verdicts = {self.score.verdict, *(test.verdict for test in self.tests)}
        if self.reasons or "breaks" in verdicts:
            return "breaks"
        return "keeps" if verdicts == {"keeps"} and not self.marks else "inconclusive"


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio before the verdict; ``why`` says why there can be none."""

    name: str
    parts: Sequence[WeightedStat] = ()
    why: str = ""
    verdict: GuaranteeVerdict = "inconclusive"
    """The verdict if there is a ``why``."""


def accept(bid: Summary, delivered: Summary, weights: Weights | None, guarantee: float) -> Acceptance:
    """Whether ``delivered`` has at least ``guarantee`` times the throughput of ``bid``, in every test and in the score.

    ``weights`` are those of the tender; without any, the score covers no test and is inconclusive.
    """
    if not 0 < guarantee <= 1:
        raise InputError(f"--guarantee {guarantee:g}: a share of the bid's throughput, above 0 and at most 1")
    effective = spread_unplanned(weights or {}, bid.devices)
    promised = {row.test: row for row in scored_tests(bid, effective)}
    found = {row.test: row for row in scored_tests(delivered, effective)}
    if not promised.keys() & found.keys():
        raise InputError(f"no test in common: the bid has {', '.join(promised)}; delivered were {', '.join(found)}")
    differing = differences(delivered, bid)
    fatal = {label: one.what for one in differing if one.ratio != "counted" for label in one.tests}
    items = [_test(label, promised[label], found.get(label), fatal.get(label)) for label in promised]
    score = _score(promised, found, effective, fatal)
    return Acceptance(
        guarantee=guarantee,
        score=_judged([score], guarantee)[0],
        tests=_judged(items, guarantee),
        reasons=_reasons(bid, delivered),
        marks=(*_marks("bid", bid, promised), *_marks("delivered", delivered, promised)),
        differences=differing,
    )


def _marks(side: Literal["bid", "delivered"], summary: Summary, labels: Container[str]) -> Iterator[SideMark]:
    """The marks of the rows named in ``labels``."""
    for mark in count_marks({label: row for label, row in summary.tests.items() if label in labels}):
        yield SideMark(side=side, mark=mark)


def _test(label: str, promised: ScoredTest, found: ScoredTest | None, fatal: str | None) -> _Item:
    if fatal is not None:
        return _Item(name=label, why=f"not the same work: {fatal} differs")
    if found is None:
        return _Item(name=label, why="it was not run on the delivered node")
    if found.perf is None and found.n:
        return _Item(name=label, why="every launch failed", verdict="breaks")
    return _Item(name=label, parts=[(1.0, found.classic_log), (-1.0, promised.classic_log)])


def _score(
    promised: Mapping[str, ScoredTest], found: Mapping[str, ScoredTest], weights: Weights, fatal: Mapping[str, str]
) -> _Item:
    lacking = [label for label in weights if label not in promised or label not in found or label in fatal]
    if not weights or lacking:
        why = f"without {', '.join(lacking)} there is no ratio of scores" if lacking else "there are no weights"
        return _Item(name="score", why=why)
    return _Item(name="score", parts=log_ratio(found, promised, list(weights), weights))


def _judged(items: Sequence[_Item], guarantee: float) -> tuple[GuaranteeRatio, ...]:
    estimates = [None if item.why else combine(item.parts) for item in items]
    wanted = math.log(guarantee)
    adjusted = iter(holm([_p_broken(one, wanted) for one in estimates if one is not None]))
    return tuple(
        _unjudged(item) if one is None else _kept(item.name, one, wanted, next(adjusted))
        for item, one in zip(items, estimates, strict=True)
    )


def _unjudged(item: _Item) -> GuaranteeRatio:
    why = item.why or why_none(item.parts)
    return GuaranteeRatio(name=item.name, ratio=None, low=None, high=None, verdict=item.verdict, why=why)


def _kept(name: str, estimate: Estimate, wanted: float, p: float) -> GuaranteeRatio:
    half = estimate.half_width(2 * LEVEL - 1)
    verdict: GuaranteeVerdict = "inconclusive"
    if estimate.n >= RANKED_FROM:
        verdict = "keeps" if estimate.mean - half >= wanted else "breaks" if p < 1 - LEVEL else "inconclusive"
    return GuaranteeRatio(
        name=name,
        ratio=math.exp(estimate.mean),
        low=math.exp(estimate.mean - half),
        high=math.exp(estimate.mean + half),
        verdict=verdict,
        why="" if estimate.n >= RANKED_FROM else f"under {RANKED_FROM} repeats",
    )


def _p_broken(estimate: Estimate, wanted: float) -> float:
    """One-sided p value: the probability of a ratio this low or lower if the guarantee is just kept."""
    if estimate.variance == 0:
        return 0.0 if estimate.mean < wanted else 1.0
    return t_tail((wanted - estimate.mean) / math.sqrt(estimate.variance), estimate.df)


def _reasons(bid: Summary, delivered: Summary) -> tuple[str, ...]:
    reasons = []
    if delivered.devices < bid.devices:
        reasons.append(f"{delivered.devices} devices were delivered, {bid.devices} were bid")
    rate = failure_rate(delivered)
    if not rate.passed:
        reasons.append(
            f"{rate.fail} of {rate.n} launches failed on the delivered node, the limit is {FAILURE_LIMIT:.2%}"
        )
    return tuple(reasons)

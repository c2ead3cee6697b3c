"""Whether the delivered node keeps what the bid promised. Pure.

For each test and for the score: the ratio of the geometric means over the repeats, delivered over bid, with its
one-sided 95 % bounds (Welch on logarithms, see `intervals`), for other days of these two nodes (see
`other_machine`). The ratio keeps the guarantee if the lower bound is above it, and breaks it if the ratio is
significantly below it, with p values adjusted by Holm's method over the score and all tests: one false break spoils the
verdict. The node keeps the guarantee if the score does and nothing breaks it; that rests on one test, which needs no
adjustment. A demand that every noisy test keep it by itself would fail most equal nodes. Anything in between is
inconclusive. The test is against the guarantee itself, so no additional margin is needed. With a mark on either side,
which makes a result not comparable, or a test that cannot be compared, nothing keeps the guarantee. Nor does it if a
test is significantly below the guarantee by the spread of the delivered node alone: a bidder could make a test of his
bid noisy, and no node would break it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.scoring.other_machine import day_variance, predicted
from milabench_ng.analysis.scoring.score import log_ratio, why_unknown
from milabench_ng.analysis.scoring.scored import ScoredRows, ScoredTest, scored_tests
from milabench_ng.analysis.scoring.weights import Weights, planned_weights
from milabench_ng.analysis.statistics.effects import holm
from milabench_ng.analysis.statistics.intervals import (
    LEVEL,
    Estimate,
    LogStat,
    WeightedStat,
    combine,
    t_tail,
)
from milabench_ng.analysis.summary.comparable import differences
from milabench_ng.analysis.summary.marked import Marked, count_marks
from milabench_ng.analysis.summary.summary import Summary, name_of_row
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import gathered
from milabench_ng.model.plain import names_of
from milabench_ng.model.units import counted
from milabench_ng.records.work import WorkDifference
from milabench_ng.tender.characteristic import OperatingPoint, characteristic
from milabench_ng.tender.deciding import Deciding, OpenRatio, Side, deciding

SHIELDED = "below the guarantee; inconclusive only because the bid itself is noisy"

GuaranteeVerdict = Literal["keeps", "breaks", "inconclusive"]
PartVerdict = GuaranteeVerdict | Literal["no score"]
"""*No score*: of a suite that has no weights, which its tests alone can break."""

_NAMED = 3
"""So many tests are named, where a message is about many."""


class GuaranteeRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio of a test or of a score, against the guarantee."""

    name: str
    ratio: float | None
    low: float | None
    """One-sided 95 % bound, as is ``high``."""
    high: float | None
    verdict: PartVerdict
    why: str = ""


class SideMark(msgspec.Struct, frozen=True, kw_only=True):
    """A mark that makes one side not comparable."""

    side: Side
    mark: Marked


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The complete result."""

    guarantee: float
    score: GuaranteeRatio
    """Of the first suite."""
    further_scores: tuple[GuaranteeRatio, ...]
    """Of the others."""
    tests: tuple[GuaranteeRatio, ...]
    reasons: tuple[str, ...]
    """What else breaks the guarantee besides the ratios: failures, missing devices."""
    marks: tuple[SideMark, ...]
    """Marks on the tests in the bid."""
    differences: tuple[WorkDifference, ...]
    declared: tuple[Side, ...]
    """The sides of fewer than three sessions, to which a declared variance between days is added."""
    other_model: str
    """The models of both sides' GPUs, if they differ; empty if not, or not known."""
    deciding: Deciding | None
    """What would decide: None unless the verdict waits on ratios alone, and if not even many sessions would."""
    characteristic: tuple[OperatingPoint, ...]
    """Of the first suite that has a score; empty without a ratio."""

    @property
    def scores(self) -> tuple[GuaranteeRatio, ...]:
        return (self.score, *self.further_scores)

    @property
    def verdict(self) -> GuaranteeVerdict:
        """Breaks if any part breaks it; keeps if the scores keep it, every test can be compared and has no mark.

        A suite without weights has no score to keep; without any score, nothing is kept.
        """
        if self.reasons or any(part.verdict == "breaks" for part in (*self.scores, *self.tests)):
            return "breaks"
        doubtful = self.marks or any(test.why for test in self.tests)
        kept = {score.verdict for score in self.scores} - {"no score"} == {"keeps"}
        return "keeps" if kept and not doubtful else "inconclusive"


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio before the verdict; ``why`` says why there can be none."""

    name: str
    parts: Sequence[WeightedStat] = ()
    declared: dict[Side, float] = {}
    """Variance between days."""
    ratio: float | None = None
    """As measured, also where nothing was repeated."""
    why: str = ""
    verdict: PartVerdict = "inconclusive"
    """The verdict if there is a ``why``."""

    @property
    def estimate(self) -> Estimate | None:
        """None if there is a ``why``."""
        found = None if self.why else combine(self.parts)
        return predicted(found, sum(self.declared.values())) if found else None

    @property
    def of_exact_bid(self) -> Estimate | None:
        """The same as if the bid's means, the negative parts, were known without error."""
        parts = [(c, stat if c > 0 else _exact(stat)) for c, stat in self.parts]
        return msgspec.structs.replace(self, parts=parts).estimate if self.estimate else None


def accept(
    bid: Summary,
    delivered: Summary,
    weights: Mapping[str, Weights | None],
    guarantee: float,
) -> Acceptance:
    """Whether ``delivered`` has at least ``guarantee`` times the throughput of ``bid``, in every test and in the score.

    ``weights`` are those of the tender, by suite: each that has some has its score. Without any score, the node is
    inconclusive.
    """
    if not 0 < guarantee <= 1:
        raise InputError(
            f"--guarantee {guarantee:g}: expected a share of the bid's throughput, at most 1. Try 0.97 or 97%"
        )
    named = {f"score of {suite}" if len(weights) > 1 else "score": known for suite, known in weights.items()}
    effective = {name: planned_weights(known or {}, bid) for name, known in named.items()}
    promised = scored_tests(bid, None)
    found = scored_tests(delivered, None)
    if not promised.keys() & found.keys():
        raise InputError(
            f"no test in common: the bid has {_few(promised)}; delivered were {_few(found)}. Run the profile of the "
            "bid on the delivered node"
        )
    differing = differences(delivered, bid)
    fatal = {label: one.what for one in differing if one.ratio != "counted" for label in one.tests}
    items = [_test(label, promised[label], found.get(label), fatal.get(label)) for label in promised]
    weighted = {label for known in named.values() for label in known or ()}
    items += [
        _Item(name=label, why=f"the bid says that its node cannot run it ({why})")
        for label, why in bid.unplanned.items()
        if label in weighted and label in delivered.tests and delivered.distinct_devices == bid.distinct_devices
    ]
    scores = [
        _score(name, promised, found, known, fatal) if named[name] else _no_score(name, alone=len(named) == 1)
        for name, known in effective.items()
    ]
    judged = _judged([*scores, *items], guarantee)
    open_ratios = _open([*scores, *items], judged, len(scores))
    sides: dict[Side, ScoredRows] = {"bid": promised, "delivered": found}
    shared = {label: 1.0 for label in promised if label in found}
    return Acceptance(
        guarantee=guarantee,
        score=judged[0],
        further_scores=judged[1 : len(scores)],
        tests=judged[len(scores) :],
        reasons=_reasons(bid, delivered),
        marks=(*_marks("bid", bid, promised), *_marks("delivered", delivered, promised)),
        differences=differing,
        declared=tuple(side for side, rows in sides.items() if day_variance(rows, shared)),
        other_model=_other_model(bid, delivered),
        deciding=deciding(open_ratios, math.log(guarantee), len(judged)) if open_ratios else None,
        characteristic=characteristic(
            _first_estimate(scores), [one for item in items if (one := item.estimate)], guarantee, len(judged)
        ),
    )


def _few(labels: Iterable[str]) -> str:
    """The first tests by name, and how many more there are."""
    return names_of(list(labels), _NAMED) or "none"


def _marks(side: Side, summary: Summary, labels: Container[str]) -> Iterator[SideMark]:
    """The marks of the rows named in ``labels``."""
    for mark in count_marks({label: row for label, row in summary.tests.items() if label in labels}):
        yield SideMark(side=side, mark=mark)


def _test(label: str, promised: ScoredTest, found: ScoredTest | None, fatal: str | None) -> _Item:
    if fatal is not None:
        return _Item(name=label, why=f"other work, or not known to be the same: {fatal}")
    if found is None:
        return _Item(name=label, why="it did not run on the delivered node")
    if found.perf is None and found.n:
        return _Item(name=label, why="every launch failed", verdict="breaks")
    declared = _days({label: promised}, {label: found}, {label: 1.0})
    parts = [(1.0, found.classic_log), (-1.0, promised.classic_log)]
    return _Item(
        name=label,
        parts=parts,
        declared=declared,
        ratio=_as_measured({label: 1.0}, {label: promised}, {label: found}),
        why=why_unknown([{label: promised}, {label: found}], [label], parts),
    )


def _days(promised: ScoredRows, found: ScoredRows, weights: Weights) -> dict[Side, float]:
    """The variance that is declared between days of each side."""
    return {"bid": day_variance(promised, weights), "delivered": day_variance(found, weights)}


def _as_measured(weights: Weights, promised: ScoredRows, found: ScoredRows) -> float | None:
    """The ratio of the rates over the tests in ``weights``; None if one has no rate."""
    rates = [(weight, _rate(found[label]), _rate(promised[label])) for label, weight in weights.items()]
    logs = [weight * math.log(ours / theirs) for weight, ours, theirs in rates if ours and theirs]
    return math.exp(math.fsum(logs) / math.fsum(weights.values())) if logs and len(logs) == len(rates) else None


def _rate(row: ScoredTest) -> float:
    """In classic units; 0 if it has none."""
    known = row.classic_log
    return math.exp(known.mean) if known else (row.perf or 0.0) * (row.classic_factor or 0.0)


def _score(
    name: str,
    promised: Mapping[str, ScoredTest],
    found: Mapping[str, ScoredTest],
    weights: Weights,
    fatal: Mapping[str, str],
) -> _Item:
    lacking = [label for label in weights if label not in promised or label not in found or label in fatal]
    if not weights or lacking:
        why = f"no ratio of scores without {_where(lacking, promised, found)}"
        why = why if lacking else "the bid planned no weighted test"
        return _Item(name=name, why=why)
    declared = _days(promised, found, weights)
    parts = log_ratio(found, promised, list(weights), weights)
    return _Item(
        name=name,
        parts=parts,
        declared=declared,
        ratio=_as_measured(weights, promised, found),
        why=why_unknown([promised, found], list(weights), parts),
    )


def _where(lacking: Sequence[str], promised: Mapping[str, ScoredTest], found: Mapping[str, ScoredTest]) -> str:
    """The tests that a score lacks, by the side that lacks them: ``"vae (not in the bid); ssd (other work)"``."""
    sides = gathered(
        ("not in the bid" if label not in promised else "not delivered" if label not in found else "other work", label)
        for label in lacking
    )
    return "; ".join(f"{names_of([*map(name_of_row, labels)], 3)} ({why})" for why, labels in sides.items())


def _no_score(name: str, *, alone: bool) -> _Item:
    why = "there are no weights" if alone else "no weights: judged by its tests alone"
    return _Item(name=name, why=why, verdict="no score")


def _first_estimate(scores: Iterable[_Item]) -> Estimate | None:
    return next((one.estimate for one in scores if one.verdict != "no score"), None)


def _judged(items: Sequence[_Item], guarantee: float) -> tuple[GuaranteeRatio, ...]:
    estimates = [item.estimate for item in items]
    wanted = math.log(guarantee)
    adjusted = iter(_adjusted(estimates, wanted))
    shielded = iter(_adjusted([item.of_exact_bid for item in items], wanted))
    return tuple(
        _unjudged(item) if one is None else _kept(item.name, one, wanted, next(adjusted), next(shielded))
        for item, one in zip(items, estimates, strict=True)
    )


def _adjusted(estimates: Sequence[Estimate | None], wanted: float) -> list[float]:
    """The p values of those that there are."""
    return holm([_p_broken(one, wanted) for one in estimates if one is not None])


def _exact(stat: LogStat | None) -> LogStat | None:
    return stat if stat is None or stat.std is None else msgspec.structs.replace(stat, std=0.0, moved=0.0)


def _unjudged(item: _Item) -> GuaranteeRatio:
    return GuaranteeRatio(name=item.name, ratio=item.ratio, low=None, high=None, verdict=item.verdict, why=item.why)


def _kept(name: str, estimate: Estimate, wanted: float, p: float, p_of_exact_bid: float) -> GuaranteeRatio:
    half = estimate.half_width(2 * LEVEL - 1)
    verdict: GuaranteeVerdict = (
        "keeps" if estimate.mean - half >= wanted else "breaks" if p < 1 - LEVEL else "inconclusive"
    )
    why = SHIELDED if verdict == "inconclusive" and p_of_exact_bid < 1 - LEVEL else ""
    return GuaranteeRatio(
        name=name,
        ratio=math.exp(estimate.mean),
        low=math.exp(estimate.mean - half),
        high=math.exp(estimate.mean + half),
        verdict=verdict,
        why=why,
    )


def _open(items: Sequence[_Item], judged: Sequence[GuaranteeRatio], scores: int) -> list[OpenRatio]:
    """The ratios on which the verdict waits: the scores, and the tests that the bid's spread leaves open."""
    return [
        OpenRatio(parts=item.parts, declared=item.declared)
        for place, (item, one) in enumerate(zip(items, judged, strict=True))
        if one.verdict == "inconclusive" and item.parts and (place < scores or one.why)
    ]


def _other_model(bid: Summary, delivered: Summary) -> str:
    promised, found = (sorted(set(side.models.values())) for side in (bid, delivered))
    if not promised or not found or promised == found:
        return ""
    return f"bid {', '.join(promised)}; delivered {', '.join(found)}"


def _p_broken(estimate: Estimate, wanted: float) -> float:
    """One-sided p value: the probability of a ratio this low or lower if the guarantee is just kept."""
    below = wanted - estimate.mean - estimate.moved
    if estimate.variance == 0:
        return 0.0 if below > 0 else 1.0
    return t_tail(below / math.sqrt(estimate.variance), estimate.df)


def _reasons(bid: Summary, delivered: Summary) -> tuple[str, ...]:
    reasons = []
    found, promised = delivered.distinct_devices, bid.distinct_devices
    if found < promised:
        reasons.append(f"the bid has {counted(promised, 'device')}, the delivered node has {found}")
    excess = failure_rate(delivered).excess
    if excess:
        reasons.append(f"{excess} on the delivered node")
    return tuple(reasons)

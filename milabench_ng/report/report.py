"""The report: everything that is printed, as one value; the renderers only format it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.report.baselines.peaks import peaks_in_formulas
from milabench_ng.report.scoring.choices import Choices, choices
from milabench_ng.report.scoring.compare import compare
from milabench_ng.report.scoring.comparison import ComparedTest, Comparison
from milabench_ng.report.scoring.cost import Price, PricePer, cost
from milabench_ng.report.scoring.failure_rate import FailureRate, failure_rate
from milabench_ng.report.scoring.neighbours import FenceGain, Slowdown, fence_gains, slowdowns
from milabench_ng.report.scoring.reference import CLASSIC_UNIT, Reference, load_reference
from milabench_ng.report.scoring.scaling import ScalingCurve, scaling_curves
from milabench_ng.report.scoring.score import Score, score
from milabench_ng.report.scoring.scored import ScoredTest, scored_tests
from milabench_ng.report.scoring.slow_devices import GpuComparison, side_by_side
from milabench_ng.report.scoring.subsets import SubScore, sub_scores
from milabench_ng.report.scoring.weights import Groups, Weights, load_groups, load_weights, planned_weights
from milabench_ng.report.statistics.effects import MARGIN
from milabench_ng.report.summary.derived_rates import DerivedRate, derived_rates
from milabench_ng.report.summary.launches import weakest_tier
from milabench_ng.report.summary.marked import Marked, count_marks
from milabench_ng.report.summary.summary import LEFT, FailedLaunch, LaunchFlag, Summary, TestSummary
from milabench_ng.report.verification.findings import Verification
from milabench_ng.report.verification.opening import is_folder_or_bundle, load_result, load_source

NOT_RECORDED = "not recorded"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One test of the report."""

    scored: ScoredTest
    compared: tuple[ComparedTest | None, ...]
    """One per baseline, in the order of the report's comparisons; None if the baseline lacks the test."""
    node_total: float | None
    """Items per second, summed over all devices that work on the test at the same time."""
    causes: dict[str, int]
    """Failures by cause."""
    row: TestSummary
    derived: tuple[DerivedRate, ...] = ()
    """``scored.perf`` in other units."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a run, and what that is worth."""

    source: str
    summary: Summary
    isolation: str
    """The weakest tier of any launch, or ``"not recorded"``."""
    penalize_variance: bool
    score: Score | None
    """None if the suite has no weights."""
    failure_rate: FailureRate
    lines: tuple[Line, ...]
    comparisons: tuple[Comparison, ...]
    """One per baseline."""
    unplanned: tuple[str, ...] = ()
    """Weighted steps of progressions that need more devices than the node has."""
    coverage: str
    """What the intervals cover: which sessions on which nodes the repeats come from."""
    sub_scores: tuple[SubScore, ...] = ()
    gpus: GpuComparison | None = None
    """None if fewer than two devices have results."""
    show_gpus: bool = False
    """Whether the per-device matrices were requested."""
    scaling: tuple[ScalingCurve, ...] = ()
    price: Price | None
    neighbours: tuple[Slowdown, ...] = ()
    """What neighbours cost; empty if no test ran alone."""
    fence_gains: tuple[FenceGain, ...] = ()
    """What the fence is worth; empty without a baseline of the same study without it."""
    choices: Choices = Choices()
    """Inputs that are not the shipped ones."""
    verification: Verification | None = None
    """The verdict of the buyer's rules; None if none were given."""

    @property
    def score_unit(self) -> str:
        """The unit of scores, sub-scores and the baselines' scores."""
        return CLASSIC_UNIT if self.score is None else self.score.unit

    @property
    def isolated(self) -> bool:
        """Whether the kernel held every launch to its share."""
        return self.isolation == "full"

    @property
    def without_weight(self) -> tuple[str, ...]:
        """Measured tests that are not in the score; empty without a score."""
        return tuple(line.scored.test for line in self.lines if self.score and line.row.n and not line.scored.weight)

    @property
    def failed(self) -> tuple[tuple[str, FailedLaunch], ...]:
        """Every failed launch with its test."""
        return tuple((line.scored.test, failed) for line in self.lines for failed in line.row.failed)

    @property
    def not_tried(self) -> int:
        """How many launches an interrupted run has left; they count as failures until it is resumed."""
        causes = [failed.cause for _, failed in self.failed if self.summary.interrupted]
        return sum(cause in LEFT for cause in causes)

    @property
    def flags(self) -> tuple[tuple[str, LaunchFlag], ...]:
        """Every odd launch with its test."""
        return tuple((line.scored.test, flag) for line in self.lines for flag in line.row.flags)

    @property
    def marks(self) -> tuple[Marked, ...]:
        """Everything that makes launches not comparable, with equal marks counted together."""
        return count_marks({line.scored.test: line.row for line in self.lines})

    @property
    def exit_code(self) -> int:
        """0: all well, so far; 1: a launch failed, the score of an ended run is invalid or a rule is broken."""
        invalid = self.score is not None and self.score.status == "invalid" and not self.summary.going_on
        broken = self.verification is not None and not self.verification.passed
        return int(invalid or broken or self.failure_rate.fail > 0)


def make_report(
    source: Path,
    *,
    weights: Path | None = None,
    compare_to: Sequence[str] = (),
    price: float | None = None,
    price_per: PricePer = "node",
    penalize_variance: bool = True,
    margin: float = MARGIN,
    compare_gpus: bool = False,
    rules: str | None = None,
    nonce: str | None = None,
    allowed_signers: Path | None = None,
    authorities: Path | None = None,
) -> Report:
    """The report on a result folder, a bundle or a stored summary.

    ``weights``: a file (default: the suite's shipped one); ``compare_to``: the same, or shipped baselines;
    ``price``: the price of a node or of one GPU; ``margin``: the largest relative difference that does not matter;
    ``rules``: the buyer's; only a result folder or a bundle can be checked against them, with ``nonce`` in place of
    theirs, and ``allowed_signers`` and ``authorities`` as in `verify`.
    """
    if rules is None and nonce is not None:
        raise InputError(f"--nonce {nonce}: only rules ask for one; say --rules too")
    if not 0 < margin < 1:
        raise InputError(f"--margin {margin:.4g}: it must be above 0 and below 100 %, for example 2%")
    summary = load_result(source)
    chosen = load_weights(weights, summary.suite)
    made = build_report(
        summary,
        str(source),
        weights=chosen,
        reference=load_reference(weights, summary.suite),
        baselines=[(name, load_source(name)) for name in dict.fromkeys(compare_to)],
        price=None if price is None else (price, price_per),
        penalize_variance=penalize_variance,
        margin=margin,
        compare_gpus=compare_gpus,
        groups=load_groups(weights, summary.suite),
    )
    return msgspec.structs.replace(
        made,
        choices=choices(summary, chosen, weights),
        verification=None if rules is None else _verified(source, rules, nonce, weights, allowed_signers, authorities),
    )


def _verified(
    source: Path,
    rules: str,
    nonce: str | None,
    weights: Path | None,
    allowed_signers: Path | None,
    authorities: Path | None,
) -> Verification:
    from milabench_ng.report.verification.rules import load_rules, with_options  # most reports do not need this
    from milabench_ng.report.verification.verify import verify

    if not is_folder_or_bundle(source):
        raise InputError(f"--rules {rules}: {source} is neither a result folder nor a bundle; only these hold records")
    asked = with_options(load_rules(rules), nonce=nonce)
    return verify(source, asked, weights=weights, allowed_signers=allowed_signers, authorities=authorities)


def build_report(
    summary: Summary,
    source: str,
    *,
    weights: Weights | None,
    reference: Reference | None = None,
    baselines: Sequence[tuple[str, Summary]] = (),
    price: tuple[float, PricePer] | None = None,
    penalize_variance: bool = True,
    margin: float = MARGIN,
    compare_gpus: bool = False,
    compared: Weights | None = None,
    groups: Groups = MappingProxyType({}),
) -> Report:
    """The report on ``summary``. Pure. ``baselines`` come with their names, ``price`` with its unit.

    ``reference``: what the score is relative to; None for classic units. ``compared``: what ratios to baselines are
    over; None for the weights of the score. ``groups``: of tests with sub-scores.
    """
    effective = planned_weights(weights or {}, summary)
    scored = scored_tests(summary, effective, penalize_variance=penalize_variance)
    own = score(summary, weights, reference, penalize_variance=penalize_variance) if weights else None
    comparisons = tuple(
        compare(
            summary,
            other,
            name,
            effective if compared is None else compared,
            own,
            penalize_variance=penalize_variance,
            margin=margin,
            label=label,
            reference=reference,
            groups=groups,
        )
        for (name, other), label in zip(baselines, _labels([name for name, _ in baselines]), strict=True)
    )
    peaks = peaks_in_formulas(summary.models.values())
    return Report(
        source=source,
        summary=summary,
        isolation=_isolation(summary),
        penalize_variance=penalize_variance,
        score=own,
        failure_rate=failure_rate(summary),
        lines=tuple(_line(row, summary.tests[row.test], comparisons, peaks) for row in scored),
        comparisons=comparisons,
        unplanned=tuple(label for label in weights or {} if label not in effective),
        coverage=_coverage(summary),
        sub_scores=sub_scores(summary, effective, own, reference, penalize_variance=penalize_variance, groups=groups)
        if own
        else (),
        gpus=side_by_side(summary),
        show_gpus=compare_gpus,
        scaling=scaling_curves({row.test: row for row in scored}, summary.tests),
        price=cost(*price, own, summary.devices, comparisons) if price is not None else None,
        neighbours=(cells := slowdowns(summary.tests)),
        fence_gains=fence_gains(cells, _unfenced(summary, [other for _, other in baselines])),
    )


def _unfenced(summary: Summary, baselines: Sequence[Summary]) -> tuple[Slowdown, ...]:
    """The slowdowns of the first baseline that had no fence, for a run that had one."""
    without = [other for other in baselines if _isolation(other) == "none" and other.suite == summary.suite]
    return slowdowns(without[0].tests) if without and _isolation(summary) == "full" else ()


def _line(scored: ScoredTest, row: TestSummary, comparisons: Sequence[Comparison], peaks: Mapping[str, float]) -> Line:
    return Line(
        scored=scored,
        compared=tuple(other.rows.get(scored.test) for other in comparisons),
        node_total=None if scored.perf is None else scored.perf * row.devices,
        causes=dict(Counter(failed.cause for failed in row.failed)),
        row=row,
        derived=derived_rates(row, scored.perf, peaks),
    )


def _isolation(summary: Summary) -> str:
    tiers = [tier for row in summary.tests.values() for tier in row.tiers]
    return weakest_tier(tiers) if tiers else NOT_RECORDED


def _labels(names: Sequence[str]) -> list[str]:
    """Short, distinct names; a single one needs none."""
    if len(names) < 2:
        return [""] * len(names)
    short = [Path(name).name.removesuffix(".json") for name in names]
    return [brief if short.count(brief) == 1 else name for brief, name in zip(short, names, strict=True)]


def _coverage(summary: Summary) -> str:
    sessions = "this session" if summary.sessions == 1 else f"these {summary.sessions} sessions"
    return f"this node, {sessions}"

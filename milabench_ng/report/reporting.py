"""Makes the report on results: reads them, and applies to them what a user asks."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from milabench_ng.analysis.baselines.peaks import peaks_in_formulas
from milabench_ng.analysis.scoring.choices import choices
from milabench_ng.analysis.scoring.compare import compare
from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.cost import PricePer, cost
from milabench_ng.analysis.scoring.energy_cost import energy_costs
from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.scoring.lost_cells import lost_cells
from milabench_ng.analysis.scoring.neighbours import Slowdown, fence_gains, slowdowns
from milabench_ng.analysis.scoring.other_machine import day_variance
from milabench_ng.analysis.scoring.rate_curves import rate_curves
from milabench_ng.analysis.scoring.scale import Scale, load_scales
from milabench_ng.analysis.scoring.scaling import scaling_curves
from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.scoring.scored import ScoredRows, ScoredTest, scored_tests
from milabench_ng.analysis.scoring.shared_devices import shared_devices
from milabench_ng.analysis.scoring.slow_devices import side_by_side
from milabench_ng.analysis.scoring.subsets import sub_scores
from milabench_ng.analysis.scoring.weights import Weights, planned_weights
from milabench_ng.analysis.statistics.effects import MARGIN
from milabench_ng.analysis.summary.answers import known_answers
from milabench_ng.analysis.summary.derived_rates import derived_rates, sweeps
from milabench_ng.analysis.summary.ending import left_pending
from milabench_ng.analysis.summary.folder import load, load_baseline
from milabench_ng.analysis.summary.study import one_study
from milabench_ng.analysis.summary.suites import by_suite, parts_of
from milabench_ng.analysis.summary.summary import Summary, TestSummary
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain
from milabench_ng.model.shipped import baselines_of
from milabench_ng.records.folder import UNBOUNDED
from milabench_ng.records.names import RESERVED_BYTES
from milabench_ng.records.series import kept_series
from milabench_ng.records.spool_folder import waiting
from milabench_ng.report.report import NOT_RECORDED, Line, Report
from milabench_ng.verification.findings import Verification
from milabench_ng.verification.opening import Opened, is_folder_or_bundle, load_result, load_source, opened


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How results are judged, by the user's choice."""

    price: float | None = None
    """Of what ``price_per`` says, in dollars or whatever currency."""
    price_per: PricePer = "node"
    tariff: float | None = None
    """Price of a kWh, in the same currency."""
    penalize_variance: bool = True
    """Whether each test is charged for the spread of its launches."""
    margin: float = MARGIN
    """The largest relative difference that does not matter."""
    per_gpu: bool = False
    """Whether the per-device matrices are shown."""
    series: bool = False
    """Whether the telemetry of launch groups is read, which only a page shows."""

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise InputError(f"--margin {100 * self.margin:.4g}%: it must be above 0 and below 100%, for example 2%")


AS_USUAL = ReportOptions()
UNSCORED = Scale()
_NORMAL = 1.959964
"""The 97.5 % quantile of the normal distribution."""


def make_report(
    source: Path,
    *,
    weights: Path | None = None,
    compare_to: Sequence[str] = (),
    options: ReportOptions = AS_USUAL,
    rules: str | None = None,
    nonce: str | None = None,
    allowed_signers: Path | None = None,
    authorities: Path | None = None,
) -> Report:
    """The report on a result folder, a bundle or a stored summary.

    ``weights``: a file (default: the suite's shipped one); ``compare_to``: results, or shipped baselines;
    ``rules``: the buyer's; only a result folder or a bundle can be checked against them, with ``nonce`` in place of
    theirs, and ``allowed_signers`` and ``authorities`` as in `verify`.
    """
    demanded = {"--nonce": nonce, "--allowed-signers": allowed_signers, "--tsa-certs": authorities}
    asked = _typed(compare_to, options, {"--weights": weights, "--rules": rules, **demanded})
    alone = [f"{option} {plain(value)}" for option, value in demanded.items() if value is not None]
    if rules is None and alone:
        raise InputError(f"{alone[0]}: only rules ask for it. Add --rules")
    if not is_folder_or_bundle(source):
        if rules is not None:
            unfit = f"{source} is neither a result folder nor a bundle. Give one of these, which have the records"
            raise InputError(f"--rules {rules}: {unfit}")
        made = _report(load(source), source, weights, {}, compare_to, options)
        return msgspec.structs.replace(made, asked=asked, paged=options.series)
    with opened(source, within=UNBOUNDED) as there:
        made = _report(there.summary, source, weights, there.weights, compare_to, options)
        if rules is not None:
            verified = _verified(there, rules, nonce, weights, allowed_signers, authorities)
            made = msgspec.structs.replace(made, verification=verified)
        series = tuple(kept_series(there.place, there.names)) if options.series else ()
        spooled = waiting(source, there.folder.ledger) if source.is_dir() else None
        return msgspec.structs.replace(
            made,
            asked=asked,
            folder=there.folder,
            waiting=spooled,
            series=series,
            paged=options.series,
            disk_full=source.is_dir() and _disk_full(source, there.summary.devices),
            damage=there.altered,
        )


def _disk_full(folder: Path, devices: int) -> bool:
    """Whether the disk has no room for what a launch group on ``devices`` may leave."""
    disk = os.statvfs(folder)
    return disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < devices * RESERVED_BYTES


def _typed(compare_to: Sequence[str], options: ReportOptions, others: Mapping[str, object]) -> tuple[str, ...]:
    """What is typed for the same report: ``options`` as far as they are not the usual ones."""
    valued = {
        "--price": None if options.price is None else f"{options.price:.15g}",
        "--price-per": None if options.price_per == AS_USUAL.price_per else options.price_per,
        "--tariff": None if options.tariff is None else f"{options.tariff:.15g}",
        "--margin": None if options.margin == AS_USUAL.margin else f"{100 * options.margin:.15g}%",
        **others,
    }
    switches = {"--per-gpu": options.per_gpu, "--no-penalize-variance": not options.penalize_variance}
    return (
        *chain.from_iterable(("--compare", name) for name in compare_to),
        *chain.from_iterable((option, str(value)) for option, value in valued.items() if value is not None),
        *(option for option, given in switches.items() if given),
    )


def _report(
    summary: Summary,
    source: Path,
    weights: Path | None,
    packed: Mapping[str, Path],
    compare_to: Sequence[str],
    options: ReportOptions,
) -> Report:
    scales = load_scales(weights, summary)
    baselines = [(name, load_source(name)) for name in dict.fromkeys(compare_to)]
    if summary.suites:
        _require_common_suite(source, summary, baselines)
        parts = []
        for one in by_suite(summary):
            others = [(name, part) for name, other in baselines for part in parts_of(other, one.suite)]
            parts.append(build_report(one, str(source), scales[one.suite], others, options))
        made = with_suites(build_report(summary, str(source), UNSCORED, baselines, options), parts)
    else:
        made = build_report(summary, str(source), scales[summary.suite], baselines, options)
    return msgspec.structs.replace(made, choices=choices(summary, scales, weights, packed))


def comparable_baseline(made: Report) -> str:
    """The first shipped baseline that the run can be compared with, v100 before others; empty if there is none.

    Reads them, one after the other.
    """
    names = sorted(baselines_of(made.summary.known_suites), key=lambda name: name != "v100")
    return next((name for name in names if _can_compare(made, name)), "")


def _can_compare(made: Report, name: str) -> bool:
    baseline = load_baseline(name)
    for part in made.scored:
        weights = {line.scored.test: line.scored.weight for line in part.lines if line.scored.weight}
        found = compare(part.summary, baseline, name, weights, part.score)
        known = found.counted if weights else [row for row in found.rows.values() if row.perf_ratio]
        if known and not found.same_run:
            return True
    return False


def make_study(sources: Sequence[Path], compare_to: Sequence[str] = (), options: ReportOptions = AS_USUAL) -> Report:
    """The report on several result folders, bundles or summaries of one study of neighbours; see `one_study`."""
    summary = one_study([load_result(source) for source in sources])
    baselines = [(name, load_source(name)) for name in dict.fromkeys(compare_to)]
    return build_report(summary, summary.provenance.source, baselines=baselines, options=options)


def _require_common_suite(source: Path, summary: Summary, baselines: Sequence[tuple[str, Summary]]) -> None:
    for name, other in baselines:
        if not set(summary.suites) & set(other.known_suites):
            raise InputError(
                f"--compare {name}: it ran {' and '.join(other.known_suites)}, and {source} "
                f"{' and '.join(summary.suites)}; name one that ran any of these"
            )


def _verified(
    there: Opened,
    rules: str,
    nonce: str | None,
    weights: Path | None,
    allowed_signers: Path | None,
    authorities: Path | None,
) -> Verification:
    from milabench_ng.verification.rules import with_options  # most reports do not need these
    from milabench_ng.verification.rules_file import load_rules
    from milabench_ng.verification.verify import gather, judged

    asked = with_options(load_rules(rules), nonce=nonce)
    return judged(gather(there, asked, None, weights, allowed_signers, authorities))


def build_report(
    summary: Summary,
    source: str,
    scale: Scale = UNSCORED,
    baselines: Sequence[tuple[str, Summary]] = (),
    options: ReportOptions = AS_USUAL,
    *,
    compared: Weights | None = None,
) -> Report:
    """The report on ``summary``. Pure. ``baselines`` come with their names.

    ``compared``: what ratios to baselines are over; None for the weights of the score.
    """
    summary = left_pending(summary)
    charged = options.penalize_variance
    effective = planned_weights(scale.weights or {}, summary)
    scored = scored_tests(summary, effective, penalize_variance=charged)
    own = score(summary, scale.weights, scale.reference, penalize_variance=charged) if scale.weights else None
    comparisons = tuple(
        compare(
            summary,
            other,
            name,
            effective if compared is None else compared,
            own,
            penalize_variance=charged,
            margin=options.margin,
            label=label,
            reference=scale.reference,
            groups=scale.groups,
        )
        for (name, other), label in zip(baselines, _labels([name for name, _ in baselines]), strict=True)
    )
    peaks = peaks_in_formulas(summary.models.values())
    return Report(
        source=source,
        summary=summary,
        isolation=summary.isolation or NOT_RECORDED,
        penalize_variance=charged,
        score=own,
        failure_rate=failure_rate(summary),
        lines=tuple(_line(row, summary.tests[row.test], comparisons, peaks) for row in scored.values()),
        comparisons=comparisons,
        steps_left_out=tuple(
            label
            for label in scale.weights or {}
            if label not in effective and label not in summary.unplanned and _other_steps(label, summary)
        ),
        coverage=_coverage(summary),
        another_day_pct=_another_day(scored, effective),
        sub_scores=sub_scores(
            summary, scored, effective, own, scale.reference, penalize_variance=charged, groups=scale.groups
        )
        if own
        else (),
        gpus=side_by_side(summary),
        show_gpus=options.per_gpu,
        scaling=scaling_curves(scored, summary.tests),
        rate_curves=rate_curves(scored, summary.tests, peaks),
        price=None
        if options.price is None
        else cost(options.price, options.price_per, own, summary.distinct_devices, comparisons),
        energy_costs=energy_costs(
            [(summary.tests[row.test], row.weight or 0.0) for row in scored.values()],
            summary.devices,
            own,
            options.tariff,
        ),
        tariff=options.tariff,
        neighbours=(cells := slowdowns(summary.tests)),
        lost_cells=lost_cells(summary.tests),
        fence_gains=fence_gains(cells, _unfenced(summary, [other for _, other in baselines])),
        known_answers=known_answers(summary, baselines),
        shared_devices=shared_devices([summary, *(other for _, other in baselines)]),
    )


def _other_steps(label: str, summary: Summary) -> bool:
    """Whether any step ran of the progression that the step ``label`` belongs to."""
    return any(other.rpartition(".")[0] == label.rpartition(".")[0] for other in summary.tests)


def with_suites(whole: Report, suites: Sequence[Report]) -> Report:
    """The report on several suites: the weights of its tests are those of their suites. Pure."""
    scored = {line.scored.test: line.scored for part in suites for line in part.lines}
    lines = (msgspec.structs.replace(line, scored=scored.get(line.scored.test, line.scored)) for line in whole.lines)
    left_out = tuple(label for part in suites for label in part.steps_left_out)
    return msgspec.structs.replace(whole, suites=tuple(suites), lines=tuple(lines), steps_left_out=left_out)


def _unfenced(summary: Summary, baselines: Sequence[Summary]) -> tuple[Slowdown, ...]:
    """The slowdowns of the baselines that had no fence, for a run that had one; of a cell, the first comes last."""
    without = [other for other in baselines if other.isolation == "none" and other.suite == summary.suite]
    fenced = summary.isolation == "full"
    return tuple(cell for other in reversed(without) for cell in slowdowns(other.tests)) if fenced else ()


def _line(scored: ScoredTest, row: TestSummary, comparisons: Sequence[Comparison], peaks: Mapping[str, float]) -> Line:
    return Line(
        scored=scored,
        compared=tuple(other.rows.get(scored.test) for other in comparisons),
        node_total=None if scored.perf is None else scored.perf * row.devices,
        causes=dict(Counter(failed.cause for failed in row.failed)),
        row=row,
        derived=derived_rates(row, scored.perf, peaks),
        sweeps=sweeps(row, scored.perf, peaks),
    )


def _labels(names: Sequence[str]) -> list[str]:
    """Short, distinct names; a single one needs none."""
    if len(names) < 2:
        return [""] * len(names)
    short = [Path(name).name.removesuffix(".json") for name in names]
    return [brief if short.count(brief) == 1 else name for brief, name in zip(short, names, strict=True)]


def _another_day(scored: ScoredRows, weights: Weights) -> float | None:
    """How far two days lie apart; None with sessions enough, or without a weighted test that has a repeat."""
    rows = {label: row for label, row in scored.items() if label in weights and row.repeats}
    variance = day_variance(rows, {label: weights[label] for label in rows}) if rows else 0.0
    return 100 * math.expm1(_NORMAL * math.sqrt(2 * variance)) if variance else None


def _coverage(summary: Summary) -> str:
    sessions = "this session" if summary.sessions == 1 else f"these {summary.sessions} sessions"
    return f"this node, {sessions}"

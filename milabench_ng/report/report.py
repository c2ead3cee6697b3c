"""The report: everything that is printed, as one value; the renderers only format it."""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.scoring.choices import Choices
from milabench_ng.analysis.scoring.comparison import ComparedTest, Comparison
from milabench_ng.analysis.scoring.cost import Price
from milabench_ng.analysis.scoring.energy_cost import EnergyCost
from milabench_ng.analysis.scoring.failure_rate import FailureRate
from milabench_ng.analysis.scoring.lost_cells import LostCell
from milabench_ng.analysis.scoring.neighbours import FenceGain, Slowdown
from milabench_ng.analysis.scoring.rate_curves import RateCurve
from milabench_ng.analysis.scoring.reference import CLASSIC_UNIT
from milabench_ng.analysis.scoring.scaling import ScalingCurve
from milabench_ng.analysis.scoring.score import Score
from milabench_ng.analysis.scoring.scored import ScoredTest
from milabench_ng.analysis.scoring.shared_devices import SharedDevice
from milabench_ng.analysis.scoring.slow_devices import GpuComparison
from milabench_ng.analysis.scoring.subsets import SubScore
from milabench_ng.analysis.summary.answers import KnownAnswers
from milabench_ng.analysis.summary.derived_rates import DerivedRate, Sweep
from milabench_ng.analysis.summary.marked import Marked, count_marks
from milabench_ng.analysis.summary.summary import FailedLaunch, LaunchFlag, Summary, TestSummary
from milabench_ng.model.plain import quoted
from milabench_ng.model.shipped import names
from milabench_ng.records.folder import Folder
from milabench_ng.records.series import BatchSeries
from milabench_ng.records.spool_folder import Spooled
from milabench_ng.records.verified import VerifiedWork, totals
from milabench_ng.verification.findings import Verification

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
    sweeps: tuple[Sweep, ...] = ()

    def in_unit(self, unit: str) -> float | None:
        """``scored.perf`` in one of its other units; None if it has no such value."""
        return next((each.value for each in self.derived if each.unit == unit), None)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a run, and what that is worth."""

    source: str
    asked: tuple[str, ...] = ()
    """The options of `mnb report` that make the same report of ``source``."""
    summary: Summary
    isolation: str
    """The weakest tier of any launch, or ``"not recorded"``."""
    penalize_variance: bool
    score: Score | None
    """None if the suite has no weights, and for several suites."""
    failure_rate: FailureRate
    lines: tuple[Line, ...]
    comparisons: tuple[Comparison, ...]
    """One per baseline."""
    steps_left_out: tuple[str, ...] = ()
    """Weighted steps of progressions that need more devices than the node has."""
    coverage: str
    """What the intervals cover: which sessions on which nodes the repeats come from."""
    another_day_pct: float | None = None
    """By how much the mean rate may differ on another day, in percent, where its sessions do not show it; 95 %."""
    sub_scores: tuple[SubScore, ...] = ()
    gpus: GpuComparison | None = None
    """None if fewer than two devices have results."""
    show_gpus: bool = False
    """Whether the per-device matrices were requested."""
    scaling: tuple[ScalingCurve, ...] = ()
    rate_curves: tuple[RateCurve, ...] = ()
    """Of tests that differ in one option."""
    price: Price | None
    energy_costs: tuple[EnergyCost, ...] = ()
    """What the work of the score draws, by boundary; empty if that is not known, and for several suites."""
    tariff: float | None = None
    """Price of a kWh; None if none was given."""
    neighbours: tuple[Slowdown, ...] = ()
    """What neighbours cost; empty if no test ran alone."""
    lost_cells: tuple[LostCell, ...] = ()
    """What was to have a slowdown and has none; empty if no test ran alone."""
    fence_gains: tuple[FenceGain, ...] = ()
    """What the fence is worth; empty without a baseline of the same study without it."""
    shared_devices: tuple[SharedDevice, ...] = ()
    """Runs with different numbers of tenants on each device, side by side; empty without two of them."""
    known_answers: tuple[KnownAnswers, ...] = ()
    """Baselines of verified work with the same software on the same kind of device."""
    choices: Choices = Choices()
    """Inputs that are not the shipped ones."""
    verification: Verification | None = None
    """The verdict of the buyer's rules; None if none were given."""
    folder: Folder | None = None
    """What was read; None for a summary."""
    series: tuple[BatchSeries, ...] = ()
    """The telemetry of its launch groups, if it was asked for."""
    paged: bool = False
    """Whether its page is written, too."""
    waiting: Spooled | None = None
    """Of a result folder on this machine, what waits in its spool folder."""
    disk_full: bool = False
    """Whether a resume would find no room in the result folder."""
    damage: tuple[str, ...] = ()
    """What of its bundle is not as it was packed."""
    suites: tuple[Report, ...] = ()
    """The reports on its suites, if it has several: each has its own score."""

    @property
    def command(self) -> str:
        """What prints this report again."""
        return " ".join(("mnb report", *map(quoted, (self.source, *self.asked))))

    @property
    def profile(self) -> str:
        """What `mnb jobs` takes to run the same again: the name of a shipped profile, or the file as it was given."""
        if self.summary.suite in names("profiles"):
            return self.summary.suite
        return quoted(self.folder.manifest.profile.file) if self.folder and self.folder.manifest else "PROFILE"

    @property
    def scored(self) -> tuple[Report, ...]:
        """The reports that have the scores: on its suites, or itself."""
        return self.suites or (self,)

    @property
    def weighted(self) -> bool:
        """Whether its tests have weights."""
        return any(part.score is not None for part in self.scored)

    @property
    def score_unit(self) -> str:
        """The unit of scores, sub-scores and the baselines' scores."""
        return CLASSIC_UNIT if self.score is None else self.score.unit

    @property
    def isolated(self) -> bool:
        """Whether the kernel held every launch to its share."""
        return self.isolation == "full"

    @property
    def not_isolated(self) -> bool:
        """Whether a launch ran that the kernel did not hold to its share, or of which nobody knows."""
        return not self.isolated and self.has_launches

    @property
    def has_launches(self) -> bool:
        """Whether any launch has ended, so that there is something to say about launches."""
        return self.failure_rate.n > 0

    @property
    def unplanned(self) -> bool:
        """Whether launches of ours were measured, and nothing says what was planned: neither how many, nor which
        options."""
        measured = self.summary.units == "true" and self.summary.provenance.kind == "measured"
        return measured and not self.summary.has_plan and self.has_launches

    @property
    def without_weight(self) -> tuple[str, ...]:
        """Measured tests that are not in the score; empty without a score."""
        return tuple(
            line.scored.test
            for part in self.scored
            for line in part.lines
            if part.score and line.row.n and not line.scored.weight
        )

    @property
    def failed(self) -> tuple[tuple[str, FailedLaunch], ...]:
        """Every failed launch with its test."""
        return tuple((line.scored.test, failed) for line in self.lines for failed in line.row.failed)

    @property
    def not_tried(self) -> int:
        """How many launches an interrupted run has left: they were not begun, or stopped with it."""
        return self.failure_rate.left

    @property
    def verified(self) -> tuple[VerifiedWork, ...]:
        """What was verified of the work of all its tests."""
        return totals(part for row in self.summary.tests.values() for part in row.verified)

    @property
    def mismatches(self) -> int:
        """How many results were wrong, by themselves, by a vote or by known answers."""
        outvoted = sum(failed.cause == "mismatch" for _, failed in self.failed)
        other = sum(len(known.other) for known in self.known_answers)
        return max(sum(part.wrong for part in self.verified), outvoted) + other

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
        """0: all well, so far; 1: the launches are not, or an ended run has no valid score."""
        scores = [part.score for part in self.scored if part.score is not None]
        invalid = any(score.status == "invalid" for score in scores) and not self.summary.going_on
        return int(invalid or self.exit_code_of_launches)

    @property
    def exit_code_of_launches(self) -> int:
        """1: a launch failed or is left, a rule is broken, results were altered, or verified work has another result
        than a baseline's."""
        broken = self.verification is not None and not self.verification.passed
        wrong = bool(self.damage) or self.mismatches > 0
        return int(broken or wrong or self.failure_rate.fail > 0 or self.not_tried > 0)

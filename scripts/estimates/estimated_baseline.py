"""A baseline for an unmeasured device, estimated from a measured one by the rule of `carrying`. Pure.

Tests bound by CPUs, storage or kernel launches, those over several devices, and those in an arithmetic without known
pairs cannot be carried over: they are left out, by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from estimates.carrying import Held, KnownPair, TransferRule, learn, least, validate
from estimates.known_peaks import distance
from estimates.known_rates import GPU_BOUND
from milabench_ng.analysis.baselines.peaks import Arithmetic, Peak, arithmetic_of
from milabench_ng.analysis.summary.summary import EstimatedRate, Origin, Provenance, Summary, TestSummary
from milabench_ng.model.errors import InputError
from milabench_ng.records.work import Work


class RuleBasis(msgspec.Struct, frozen=True, kw_only=True):
    """What an estimate rests on."""

    rule: TransferRule
    checks: tuple[Held, ...]
    kinds: frozenset[Arithmetic]
    """The kinds of arithmetic that have known pairs."""

    @classmethod
    def of(cls, pairs: Sequence[KnownPair]) -> RuleBasis:
        """The rule learnt from ``pairs`` and checked on them."""
        return cls(rule=learn(pairs), checks=validate(pairs), kinds=frozenset(pair.arithmetic for pair in pairs))

    @property
    def notes(self) -> tuple[str, ...]:
        """The rule and how it was checked, in words."""
        found = ", ".join(f"{each.held} without its {each.left_out}" for each in self.checks)
        rule = (
            f"ratio of rates = (geometric mean of the ratios of peak arithmetic and memory) ^ {self.rule.slope:.3f}; "
            f"standard deviation of the logarithm {self.rule.spread:.3f}, {self.rule.df} degrees of freedom"
        )
        return rule, f"of {self.checks[0].known} known pairs the 95 % band held: {found}"


def estimate(measured: Summary, source: Peak, target: Peak, name: str, basis: RuleBasis) -> Summary:
    """``measured`` (made on ``source``) carried over to ``target``; ``name`` is its origin."""
    reasons = {label: _why_not(row, source, target, basis) for label, row in measured.tests.items()}
    rows = {
        label: _carried(measured.tests[label], source, target, name, basis) for label, why in reasons.items() if not why
    }
    if not rows:
        found = "; ".join(f"{label}: {why}" for label, why in reasons.items())
        raise InputError(f"{name}: no test of it can be carried over: {found or 'it has none'}")
    return Summary(
        suite=measured.suite,
        units=measured.units,
        devices=measured.devices,
        provenance=Provenance(
            kind="estimated",
            source=f"{name}, by peak rates: {source.name} to {target.name}",
            hardware=f"{measured.devices} x {target.name} (estimated)",
            software=measured.provenance.software,
            notes=(*basis.notes, f"{source.name}: {source.source}", f"{target.name}: {target.source}"),
        ),
        has_plan=False,
        notes=tuple(f"{label} is left out: {why}" for label, why in reasons.items() if why),
        tests=rows,
    )


def _why_not(row: TestSummary, source: Peak, target: Peak, basis: RuleBasis) -> str:
    """Why a test cannot be carried over; empty if it can."""
    if row.work.scheme.spreads:
        return "it depends on the connection of the devices"
    if row.work.bound not in GPU_BOUND:
        return f"it is bound by {row.work.bound or 'nothing that is recorded'}"
    if row.train is None or row.failures:
        return "it was not measured without failures"
    if len(row.work.precision) != 1:
        return f"it ran in {' and '.join(row.work.precision) or 'a precision that is not recorded'}"
    kind = arithmetic_of(row.work.precision[0])
    if distance(source, target, kind) is None:
        return f"{target.name} has no {row.work.precision[0]}"
    return "" if kind in basis.kinds else f"no two devices are known that ran the same in {kind}"


def _carried(row: TestSummary, source: Peak, target: Peak, name: str, basis: RuleBasis) -> TestSummary:
    peaks = distance(source, target, arithmetic_of(row.work.precision[0])) or 0.0
    factor, width = math.exp(basis.rule.slope * peaks), math.exp(basis.rule.half_width(peaks))
    check = least(basis.checks)
    value = factor * row.train.mean if row.train else 0.0
    return TestSummary(
        n=0,
        failures=0,
        estimate=EstimatedRate(value=value, low=value / width, high=value * width, held=check.held, known=check.known),
        work=Work(
            unit=row.work.unit,
            classic_factor=row.work.classic_factor,
            bound=row.work.bound,
            data=row.work.data,
            precision=row.work.precision,
            options=row.work.options,
        ),
        devices=row.devices,
        departures=row.departures,
        origin=Origin(kind="estimated", source=f"{name} times {factor:.3f}"),
    )

"""Rules on what a device can do at most."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.baselines.peaks import arithmetic_of, peak
from milabench_ng.records.record import Record
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged, unknown
from milabench_ng.verification.rules import Ceiling


def ceiling(evidence: Evidence) -> Finding:
    """No rate is above what the peak arithmetic of its device allows, by the FLOP of an item that the rules state."""
    limits = evidence.rules.ceiling
    if limits is None:
        return OFF
    named = list(evidence.named())
    reasons = [reason for name, record in named for reason in _above_peak(name, record, limits)]
    lacking = [reason for name, record in named for reason in _without_peak(name, record, limits)]
    if reasons or lacking:
        return judged([*reasons, *lacking])
    known = sum(record.mnb.launch.test in limits.flops_per_item for _, record in named)
    if not known:
        return unknown("the rules know no FLOP count of what ran")
    return Finding("pass", (f"looked at in {known} of {len(named)} launches, whose FLOP and peak are known",))


def _above_peak(name: str, record: Record, limits: Ceiling) -> Iterator[str]:
    flops, (device, mode) = limits.flops_per_item.get(record.mnb.launch.test), _computed_on(record)
    highest = None if mode is None else _peak_flops(limits, device, mode)
    if flops is None or highest is None:
        return
    for rank in record.mnb.ranks:
        fastest = max((row.count / row.length_s for row in rank.slices if row.length_s > 0), default=0.0)
        times = fastest * flops / highest
        if times > limits.slack:
            yield (f"{name}: {fastest:.6g} items/s x {flops:.3g} FLOP are {times:.2f} x the peak of {device} in {mode}")


def _without_peak(name: str, record: Record, limits: Ceiling) -> Iterator[str]:
    """A ceiling is demanded of launches whose FLOP are known, so the peak of their device must be, too."""
    device, mode = _computed_on(record)
    if not record.success or record.mnb.launch.test not in limits.flops_per_item:
        return
    if mode is None or _peak_flops(limits, device, mode) is None:
        yield f"{name}: the peak of {device} in {mode} is not known; state it in the rules (ceiling.peak_flops)"


def _computed_on(record: Record) -> tuple[str, str | None]:
    """The device and the mode that ran."""
    return record.mnb.devices[0].name, record.mnb.precision.ran_before if record.mnb.precision else None


def _peak_flops(limits: Ceiling, device: str, mode: str) -> float | None:
    """The peak from the buyer's rules, else from the data sheet; None if neither has it."""
    stated = limits.peak_flops.get(device, {}).get(mode)
    known = peak(device)
    rate = known.arithmetic(arithmetic_of(mode)) if known else None
    return stated if stated is not None else rate and rate * 1e12

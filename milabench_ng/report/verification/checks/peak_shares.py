"""Rates beyond the peaks of a device, by its data sheet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milabench_ng.catalogue import DEVICE_PEAKS, Derived
from milabench_ng.errors import InputError
from milabench_ng.formula import names
from milabench_ng.records.record import Mnb
from milabench_ng.records.window import launch_perf
from milabench_ng.report.baselines.peaks import peak, peaks_in_formulas
from milabench_ng.report.verification.evidence import Evidence

_PEAKS = dict(zip(DEVICE_PEAKS, ("arithmetic", "memory bandwidth", "fp8 arithmetic"), strict=True))
_MOST = {"peak_tflops": 105.0, "peak_fp8_tflops": 105.0, "peak_gb_per_s": 200.0}
"""Percent. Data sheets state arithmetic at a clock near the highest; measured shares are below 80. What fits into a
cache is read faster than memory can."""
_ABOVE_SHEET = 1.1
"""How many times the peak of its data sheet a GPU may do: the highest clock of an H100 is 1.08 times the stated one."""


def beyond_peak(evidence: Evidence) -> Iterator[str]:
    """Launches whose rate is a greater share of their device's peak than there is."""
    for name, record in evidence.named():
        mnb = record.mnb
        own = evidence.declared.get(mnb.launch.workload)
        peaks = peaks_in_formulas(device.name for device in mnb.devices)
        if own is None or not peaks or not record.success:
            continue
        for which, most in _MOST.items():
            shares = [
                share for each in own.derived if which in names(each.formula) for share in _value(each, mnb, peaks)
            ]
            if shares and min(shares) > most:  # of several conventions, the one that counts least
                yield (
                    f"{name}: {min(shares):.0f} % of the peak {_PEAKS[which]} of {mnb.devices[0].name}; "
                    f"no work gets {most:g} %"
                )


def above_sheet(evidence: Evidence) -> Iterator[str]:
    """Antagonists, also as company, with more bf16 arithmetic than the data sheet of their GPU has: none is saved."""
    for name, record in evidence.named():
        mnb, own = record.mnb, evidence.builtin.get(record.mnb.launch.workload)
        known = peak(mnb.devices[0].name)
        if own is None or "busy" not in own.defaults or known is None:
            continue
        for each in own.derived:
            for value in _value(each, mnb, {}) if each.unit == "TFLOP/s" else ():
                if value > known.half * _ABOVE_SHEET:
                    yield f"{name}: {value:.6g} TFLOP/s, the peak of {mnb.devices[0].name} is {known.half:g}"


def _value(derived: Derived, mnb: Mnb, peaks: Mapping[str, float]) -> tuple[float, ...]:
    """At the mean rate of the ranks; empty if it has none, or is for other options."""
    if mnb.window is None or not derived.fits(mnb.launch.arguments):
        return ()
    perf = launch_perf([rank.slices for rank in mnb.ranks], mnb.window)
    try:
        return (derived.of(perf, mnb.launch.arguments, {**peaks, "devices": len(mnb.devices)}),)
    except InputError:  # over notes, which are no share of a peak, or options that the record lacks
        return ()

"""Shares of a device's peak, by its data sheet, that nothing reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milabench_ng.catalogue import DEVICE_PEAKS, Derived
from milabench_ng.errors import InputError
from milabench_ng.formula import names
from milabench_ng.records.record import Mnb
from milabench_ng.records.window import rate
from milabench_ng.report.baselines.peaks import peaks_in_formulas
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.stats import mean

_PEAKS = dict(zip(DEVICE_PEAKS, ("arithmetic", "memory bandwidth", "fp8 arithmetic"), strict=True))
_MOST = {"peak_tflops": 105.0, "peak_fp8_tflops": 105.0, "peak_gb_per_s": 200.0}
"""Percent. Data sheets state arithmetic at a clock near the highest; measured shares are below 80. What fits into a
cache is read faster than memory can."""


def beyond_peak(evidence: Evidence) -> Iterator[str]:
    """Launches whose rate is a greater share of their device's peak than there is."""
    for name, record in evidence.named():
        mnb = record.mnb
        own = evidence.declared.get(mnb.launch.workload)
        peaks = peaks_in_formulas(device.name for device in mnb.devices)
        if own is None or not peaks or not record.success:
            continue
        for peak, most in _MOST.items():
            shares = [
                share for each in own.derived if peak in names(each.formula) for share in _value(each, mnb, peaks)
            ]
            if shares and min(shares) > most:  # of several conventions, the one that counts least
                yield (
                    f"{name}: {min(shares):.0f} % of the peak {_PEAKS[peak]} of {mnb.devices[0].name}; "
                    f"no work gets {most:g} %"
                )


def _value(derived: Derived, mnb: Mnb, peaks: Mapping[str, float]) -> tuple[float, ...]:
    """At the mean rate of the ranks; empty if it has none, or is for other options."""
    if mnb.window is None or not derived.fits(mnb.launch.arguments):
        return ()
    mean_rate = mean([rate(rank.slices, mnb.window) for rank in mnb.ranks])
    try:
        return (derived.of(mean_rate, mnb.launch.arguments, {**peaks, "devices": len(mnb.devices)}),)
    except InputError:  # over notes, which are no share of a peak, or options that the record lacks
        return ()

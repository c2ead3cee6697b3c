"""Rates beyond the peak of a device, by its data sheet and by the formula that counts the work of an item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milabench_ng.analysis.baselines.peaks import peaks_in_formulas
from milabench_ng.model.catalogue import DEVICE_PEAKS, Derived, Scalar
from milabench_ng.model.errors import InputError
from milabench_ng.model.formula import names
from milabench_ng.records.record import Mnb
from milabench_ng.records.window import launch_perf
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_PEAKS = dict(zip(DEVICE_PEAKS, ("arithmetic", "memory bandwidth", "fp8 arithmetic", "fp4 arithmetic"), strict=True))
_MOST = {"peak_tflops": 105.0, "peak_fp8_tflops": 105.0, "peak_fp4_tflops": 105.0, "peak_gb_per_s": 200.0}
"""Percent. Data sheets state arithmetic at a clock near the highest; measured shares are below 80. What fits into a
cache is read faster than memory can."""


def _beyond(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        mnb = record.mnb
        own = evidence.declared.get(mnb.launch.workload)
        peaks = peaks_in_formulas(device.name for device in mnb.devices)
        if own is None or not peaks or not record.success:
            continue
        options = own.completed(mnb.launch.arguments)
        for which, most in _MOST.items():
            formulas = [each for each in own.derived if which in names(each.formula)]
            shares = [share for each in formulas if each.fits(options) for share in _value(each, mnb, options, peaks)]
            if shares and min(shares) > most:  # of several conventions, the one that counts least
                yield (
                    f"{name}: {min(shares):.0f}% of the peak {_PEAKS[which]} of {mnb.devices[0].name}; "
                    f"no work gets {most:g}%"
                )


def _value(
    derived: Derived, mnb: Mnb, options: Mapping[str, Scalar | None], peaks: Mapping[str, float]
) -> tuple[float, ...]:
    """At the mean rate of the ranks; empty if it has none."""
    if mnb.window is None:
        return ()
    perf = launch_perf([rank.slices for rank in mnb.ranks], mnb.window)
    try:
        return (derived.of(perf, options, {**peaks, "devices": len(mnb.devices)}),)
    except InputError:  # over notes, which are no share of a peak, or options that the record lacks
        return ()


DOUBT = Doubt(
    name="beyond-peak",
    title="more work than the data sheet of the device allows",
    ask="ask which device it was: no known honest result shows this doubt",
    look=_beyond,
)

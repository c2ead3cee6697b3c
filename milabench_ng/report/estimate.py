"""A baseline for a device that was not measured, from one that was: a roofline rule with its band. Pure.

After Williams, Waterman and Patterson ("Roofline", CACM 52(4), 2009) every kernel is held back by arithmetic or by
memory. A test that the GPU bounds is a mixture of both kinds, so that its rate on the other device lies between what
the ratio of the peak rates says and what the ratio of the bandwidths says. The estimate is their geometric middle, the
band reaches to both. It says nothing of caches, clocks under load or software. Tests that CPUs, storage or the
launching of kernels hold back, and those over several devices, cannot be carried over: they are left out by name.
"""

from __future__ import annotations

import math

from milabench_ng.errors import InputError
from milabench_ng.report.peaks import Peak
from milabench_ng.report.summary import Origin, Provenance, Stat, Summary, TestSummary

GPU_BOUND = ("gpu-compute", "gpu-memory")


def estimate(measured: Summary, source: Peak, target: Peak, name: str) -> Summary:
    """``measured`` (made on ``source``) carried over to ``target``; ``name`` says where it came from."""
    rows = {
        label: _carried(row, source, target, name) for label, row in measured.tests.items() if not _why_not(row, target)
    }
    left_out = {label: why for label, row in measured.tests.items() if (why := _why_not(row, target))}
    if not rows:
        raise InputError(f"{name}: no test of it is bound by the GPU, so nothing can be estimated")
    return Summary(
        suite=measured.suite,
        units=measured.units,
        devices=measured.devices,
        provenance=Provenance(
            kind="estimated",
            source=f"{name}, by peak rates: {source.name} to {target.name}",
            hardware=f"{measured.devices} x {target.name} (estimated)",
            software=measured.provenance.software,
            notes=(f"{source.name}: {source.source}", f"{target.name}: {target.source}"),
        ),
        has_plan=False,
        notes=tuple(f"{label} is left out: {why}" for label, why in left_out.items()),
        tests=rows,
    )


def _why_not(row: TestSummary, target: Peak) -> str:
    """Why a test cannot be carried over; empty where it can."""
    if row.scheme != "per-gpu":
        return "it depends on the connection of the devices"
    if row.bound not in GPU_BOUND:
        return f"it is bound by {row.bound or 'nothing that is recorded'}"
    if row.train is None or row.failures:
        return "it was not measured without failures"
    if len(row.precision) != 1:
        return f"it ran in {' and '.join(row.precision) or 'a precision that is not recorded'}"
    if target.arithmetic(row.precision[0]) is None:
        return f"{target.name} has no {row.precision[0]}"
    return ""


def factor(row: TestSummary, source: Peak, target: Peak) -> tuple[float, tuple[float, float]]:
    """What to multiply a rate with, and the band around that as multiples of it."""
    mode = row.precision[0]
    arithmetic = (target.arithmetic(mode) or math.nan) / (source.arithmetic(mode) or math.nan)
    memory = target.memory / source.memory
    middle = math.sqrt(arithmetic * memory)
    return middle, (min(arithmetic, memory) / middle, max(arithmetic, memory) / middle)


def _carried(row: TestSummary, source: Peak, target: Peak, name: str) -> TestSummary:
    middle, band = factor(row, source, target)
    train = row.train
    return TestSummary(
        n=row.n,
        failures=0,
        train=Stat(train.n, *(middle * part for part in (train.min, train.max, train.mean, train.std)))
        if train
        else None,
        unit=row.unit,
        classic_factor=row.classic_factor,
        bound=row.bound,
        devices=row.devices,
        data=row.data,
        precision=row.precision,
        options=row.options,
        origin=Origin(
            kind="estimated",
            source=f"{name} times {middle:.3f}",
            caveat="geometric middle between the ratios of peak arithmetic and of memory bandwidth",
            band=band,
        ),
    )

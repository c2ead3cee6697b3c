"""How far the rate in the window is from the true one, over launches with stalls that may cross its edges."""

from __future__ import annotations

import numpy as np

from milabench_ng.records.window import MEASURED_BY, SliceRow, WindowRule, averaging_window, rate
from simulations.finding import Finding, average

TRIALS = 20_000
FEW_TRIALS = 2000
SLICE_S, LAUNCH_S = 0.5, 60.0
STALLS = ((1.0, 5.0), (1.0, 20.0), (2.0, 20.0), (5.0, 20.0), (5.0, 30.0))
"""Seconds of each stall, and from one to the next."""
LONGER = WindowRule(length_s=45.0, edges=MEASURED_BY.edges)


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Relative error of the mean rate, of a launch that is stopped by another tenant, or by itself."""
    found = []
    for rule, per in ((MEASURED_BY, 1), (LONGER, 4)):
        for stall_s, every_s in STALLS:
            what = f"{stall_s:g} s of nothing every {every_s:g} s, window of {rule.length_s:g} s"
            errors = [_error(rng, stall_s, every_s, rule, to_slice=False) for _ in range(trials // per)]
            found.append(average(f"{what}: mean error", errors, low=-0.01, high=0.01))
    errors = [_error(rng, 5.0, 20.0, MEASURED_BY, to_slice=True) for _ in range(trials)]
    return [*found, average("5 s of nothing every 20 s, stopped by itself: mean error", errors)]


def _error(rng: np.random.Generator, stall_s: float, every_s: float, rule: WindowRule, *, to_slice: bool) -> float:
    """Of one launch, whose slices have 500 items each and take half a second without a stall.

    It is stopped at a random moment, or, ``to_slice``, at the first slice's end after it. If it has no window then, it
    goes on for half a second.
    """
    rows, now, stall = [], -float(rng.uniform(0, SLICE_S)), float(rng.uniform(0, every_s))
    stop = LAUNCH_S + float(rng.uniform(0, every_s))
    window = None
    while window is None:
        while now < stop:
            length = SLICE_S + (stall_s if stall < now + SLICE_S else 0.0)
            stall += every_s if length > SLICE_S else 0.0
            rows.append(SliceRow(now, length, 500, 5, 0.0))
            now += length
        stop = now if to_slice else stop
        window = averaging_window([rows], stop, rule)
        stop += SLICE_S
    return rate(rows, window) / 1000 / (1 - stall_s / every_s) - 1

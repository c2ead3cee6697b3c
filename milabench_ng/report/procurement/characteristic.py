"""How likely each verdict on a delivery's score is, for nodes whose true ratio is known. Pure."""

from __future__ import annotations

import math

import msgspec

from milabench_ng.report.statistics.intervals import LEVEL, Estimate, t_quantile, t_tail

STEPS_PCT = (-5, -3, -2, -1, 0, 1, 2, 3, 5)
"""The ratios of the operating characteristic, in percent from the guarantee."""


class OperatingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What the score's test says of a node whose true ratio is known, at the spread of these two runs."""

    ratio: float
    keeps: float
    """Probability, 0 to 1, as is ``breaks``."""
    breaks: float


def characteristic(estimate: Estimate | None, guarantee: float, family: int) -> tuple[OperatingPoint, ...]:
    """How likely each verdict on the score is for nodes of known ratios: noncentral t (Johnson and Welch 1940).

    ``family``: over how many p values Holm adjusts; the score alone breaks it at the strictest step.
    """
    if estimate is None or not estimate.variance:
        return ()
    error, df = math.sqrt(estimate.variance), estimate.df
    keeps, breaks = t_quantile(LEVEL, df), t_quantile(1 - (1 - LEVEL) / family, df)
    ratios = sorted({1.0, *(guarantee * (1 + step / 100) for step in STEPS_PCT)})
    away = {ratio: math.log(ratio / guarantee) / error for ratio in ratios}
    return tuple(
        OperatingPoint(ratio=ratio, keeps=t_tail(keeps, df, by), breaks=1 - t_tail(-breaks, df, by))
        for ratio, by in away.items()
    )

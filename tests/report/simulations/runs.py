"""Summaries of made-up runs."""

from __future__ import annotations

import numpy as np
from rows import row_of

from milabench_ng.analysis.statistics.intervals import log_stat
from milabench_ng.analysis.summary.summary import Provenance, Stat, Summary, TestSummary
from simulations.model import Floats

HERE = Provenance(kind="measured", source="made up", hardware="none")


def run_of(rates: Floats, order: str = "") -> Summary:
    """A run with ``rates`` of shape (tests, devices, repeats), where a launch that failed is not a number."""
    tests = {f"s.{place}": _row(test) for place, test in enumerate(rates)}
    orders = (order,) if order else ()
    return Summary(
        suite="s", units="true", devices=rates.shape[1], provenance=HERE, has_plan=True, tests=tests, orders=orders
    )


def _row(rates: Floats) -> TestSummary:
    good = rates[~np.isnan(rates)]
    whole = {str(place): float(each.mean()) for place, each in enumerate(rates.T) if not np.isnan(each).any()}
    return row_of(
        n=rates.size,
        failures=rates.size - good.size,
        train=Stat(good.size, float(good.min()), float(good.max()), float(good.mean()), float(good.std())),
        repeats=whole,
        log_perf=log_stat(list(whole.values())),
        unit="items",
        classic_factor=1.0,
        planned=rates.size,
    )

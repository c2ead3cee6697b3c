"""Slow repeats: which are called so, how far they move a mean, and that intervals hold it with and without them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import make_records
import numpy as np
import pytest
from make_records import PER_GPU
from simulations.runs import run_of

from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.statistics.effects import effect, p_value
from milabench_ng.analysis.statistics.intervals import combine, interval, stat_of_logs, t_quantile
from milabench_ng.analysis.statistics.slow_repeats import slow_places
from milabench_ng.analysis.summary.folder import load
from milabench_ng.model.plan import Launch

STEADY = (0.000, 0.004, 0.008, 0.012)


@pytest.mark.parametrize(
    ("logs", "slow"),
    [
        ((*STEADY, -0.16), (4,)),
        ((-0.050, *STEADY), (0,)),  # four times 0.012, and 5 % below
        ((-0.047, *STEADY), ()),  # not quite 5 %
        ((0, 0.02, 0.04, -0.15, 0.03), ()),  # 0.15 is less than four times 0.04
        ((0, 0.02, 0.04, -0.17, 0.03), (3,)),
        ((*STEADY, 0.16), ()),  # a fast one is no slow one
        ((*STEADY[:3], -0.16), ()),  # of four repeats nothing is known
        ((-0.15, -0.16, *STEADY), (1, 0)),
        ((-0.15, -0.16, *STEADY[:3]), ()),  # two of five are no exception
        ((0.0,) * 5, ()),
        ((), ()),
    ],
)
def test_slow_lies_far_below_all_others(logs: Sequence[float], slow: tuple[int, ...]) -> None:
    assert slow_places(logs) == slow


def test_an_interval_holds_the_mean_with_and_without_them() -> None:
    stat = stat_of_logs((*STEADY, -0.16))
    assert stat.moved == pytest.approx(0.006 - (0.024 - 0.16) / 5)
    estimate = combine([(-0.5, stat)])
    assert estimate.moved == pytest.approx(0.5 * stat.moved)
    error = t_quantile(0.975, 4) * math.sqrt(estimate.variance)
    assert estimate.half_width() == pytest.approx(error + estimate.moved)
    found = interval(estimate)
    assert math.log(found.high / found.value) == pytest.approx(error + estimate.moved)
    assert p_value(estimate, math.expm1(estimate.mean + estimate.moved)) == 1.0, "the usual mean may be at the edge"


def test_a_verdict_is_as_wide() -> None:
    slow = [(1.0, stat_of_logs([0.1 + log for log in (*STEADY, *STEADY, 0.006, -0.16)]))]
    assert effect(slow, 0.03).verdict == "better"
    assert effect(slow, 0.045).verdict == "inconclusive", "t alone calls it better up to a margin of 5.3%"


def test_a_score_is_widened_by_the_weight_of_what_is_slow() -> None:
    rates = np.exp(np.array([[*STEADY, 0.004], [*STEADY, -0.16]]))[:, None, :]
    both = score(run_of(rates), {"s.0": 3.0, "s.1": 1.0}, penalize_variance=False).interval
    steady = score(run_of(rates), {"s.0": 3.0}, penalize_variance=False).interval
    assert steady is not None
    usual = (3 * np.mean([*STEADY, 0.004]) + 0.006) / 4
    assert math.log(both.low) < usual < math.log(both.high)


def test_it_is_named_and_counts(tmp_path: Path) -> None:
    def rate(launch: Launch, _: int) -> float:
        return 1000.0 * (0.85 if launch.run == 3 else 1 + 0.001 * launch.run)

    make_records.write_run(tmp_path, make_records.plan("quick", {"vae": PER_GPU}, 2, 6), rate)
    (row,) = load(tmp_path).tests.values()
    (flag,) = [one for one in row.flags if one.kind == "slow repeat"]
    assert (flag.job_id, flag.detail[:24]) == ("3", "-15.2% vs. the others: i")
    assert len(row.repeats) == 6

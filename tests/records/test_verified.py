"""What verified work says of errors: sums, the rule of three, and the sentence."""

from __future__ import annotations

import math

import pytest
from scipy import special

from milabench_ng.model.bounds import Spread
from milabench_ng.model.events import WorkUnit
from milabench_ng.records.endurance import Endurance, part, parts_of
from milabench_ng.records.verified import Verified, VerifiedWork, poisson_limit, sentence, totals
from milabench_ng.records.window import MEASURED_BY, SliceRow, WindowRule, rate


def verified(unit: WorkUnit, work: float, wrong: int = 0) -> Verified:
    return Verified(unit=unit, values="normal", checks=10, work=work, wrong=wrong)


def test_none_of_many_is_bounded_by_the_rule_of_three() -> None:
    assert poisson_limit(0) == pytest.approx(-math.log(0.05))
    assert sentence([VerifiedWork("TFLOP", 812e3, 0)]) == ("812 PFLOP, 0 mismatches (95% bound: 3.7 per EFLOP)")


@pytest.mark.parametrize("seen", [1, 2, 5, 20, 1000, 100_000])
def test_a_bound_with_mismatches_is_that_of_poisson(seen: int) -> None:
    assert poisson_limit(seen) == pytest.approx(special.gammaincinv(seen + 1, 0.95), rel=0.004)


def test_units_are_summed_apart() -> None:
    parts = [verified("TFLOP", 400.0), verified("GB", 20.0, wrong=1), verified("TFLOP", 600.0)]
    found = totals(parts)
    assert found == (VerifiedWork("TFLOP", 1000.0, 0), VerifiedWork("GB", 20.0, 1))
    assert totals(found) == found
    assert sentence(found) == ("1 PFLOP and 20 GB, 1 mismatch (95% bound: 3,000 per EFLOP and 240 per TB)")


def test_no_work_says_nothing() -> None:
    assert sentence([]) == sentence([VerifiedWork("GB", 0.0, 0)]) == ""
    assert sentence([VerifiedWork("GB", 1e15, 0)]).startswith("1e+09 PB")
    assert sentence([VerifiedWork("GB", 1e-3, 0)]).startswith("0.001 GB")


LASTING = WindowRule(settle_s=1790.0, edges="shared")


def test_the_ends_of_a_long_launch_are_ten_minutes_each() -> None:
    assert parts_of(100.0, 114.0, MEASURED_BY) is None
    ends = parts_of(100.0, 1905.0, LASTING)
    assert ends is not None
    assert [(one.start_s, one.end_s) for one in ends] == [(102.0, 702.0), (1304.0, 1904.0)]


def test_shorter_ones_are_thirds_and_the_shortest_none() -> None:
    rule = WindowRule(settle_s=50.0, edges="shared")
    ends = parts_of(0.0, 63.0, rule)
    assert ends is not None
    assert [(one.start_s, one.end_s) for one in ends] == [(2.0, 22.0), (42.0, 62.0)]
    assert parts_of(0.0, 30.0, WindowRule(settle_s=5.0, edges="shared")) is None


def test_the_change_is_that_of_the_rate_between_both_ends() -> None:
    rows = [SliceRow(float(at), 1.0, 100 if at < 900 else 95, 1, 0.0) for at in range(1800)]
    ends = parts_of(0.0, 1800.0, LASTING)
    assert ends is not None
    spread = {"gpu:GPU-0": {name: Spread(10, 1.0, 2.0, 3.0, 5.0) for name in ("sm_clock_mhz", "energy_j")}}
    first, last = (part(end, [rows, rows], spread) for end in ends)
    assert first is not None
    assert last is not None
    assert rate(rows, ends[0]) == first.rate == pytest.approx(100)
    assert Endurance(first=first, last=last).change == pytest.approx(-0.05)
    assert [*first.telemetry["gpu:GPU-0"]] == ["sm_clock_mhz"]


def test_a_rank_that_did_nothing_at_one_end_has_no_endurance() -> None:
    ends = parts_of(0.0, 1800.0, LASTING)
    assert ends is not None
    assert part(ends[1], [[SliceRow(1.0, 1.0, 1, 1, 0.0)]], {}) is None

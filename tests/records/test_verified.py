"""What verified work says of errors: sums, the rule of three, and the sentence."""

from __future__ import annotations

import math

import pytest
from scipy import special

from milabench_ng.model.events import WorkUnit
from milabench_ng.records.verified import Verified, VerifiedWork, poisson_limit, sentence, totals


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

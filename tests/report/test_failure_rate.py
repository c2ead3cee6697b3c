"""The failure rate with its bounds, and the cap that even the lower one must exceed."""

from __future__ import annotations

import pytest

from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.summary.summary import Provenance, Summary, TestSummary

HERE = Provenance(kind="measured", source="made up", hardware="1 x GPU")


@pytest.mark.parametrize(
    ("fail", "n", "least", "most", "passed", "text"),
    [
        (0, 216, 0.0, 1 - 0.05 ** (1 / 216), True, "0 of 216 failed: 0%, at most 1.4% with 95% confidence"),
        (1, 12, 1 - 0.95 ** (1 / 12), 0.3387, True, "1 of 12 failed: 8.33%, at least 0.43% and at most 33.9% with"),
        (2, 12, 0.0305, 0.4381, False, "2 of 12 failed: 16.7%, at least 3.05% and at most 43.8% with 95% confidence"),
        (5, 216, 0.0092, 0.0481, True, "5 of 216 failed: 2.31%, at least 0.92% and at most 4.8% with 95%"),
        (6, 216, 0.0122, 0.0541, False, "6 of 216 failed: 2.78%, at least 1.22% and at most 5.4% with 95%"),
        (3, 3, 0.05 ** (1 / 3), 1.0, False, "3 of 3 failed: 100%, at least 36.84% and at most 100.0% with 95%"),
        (0, 0, 0.0, 1.0, False, "no launch has finished"),
    ],
)
def test_a_cap_is_broken_by_the_lower_bound_alone(
    fail: int, n: int, least: float, most: float, passed: bool, text: str
) -> None:
    found = failure_rate(
        Summary(
            suite="s",
            units="true",
            devices=1,
            provenance=HERE,
            has_plan=True,
            tests={"s.vae": TestSummary(n=n, failures=fail)},
        )
    )
    assert (found.least, found.most) == (pytest.approx(least, abs=1e-4), pytest.approx(most, abs=1e-4))
    assert found.passed is passed
    assert found.text.startswith(text)
    assert bool(found.excess) is not (passed or n == 0)


def test_launches_without_a_record_are_told_apart() -> None:
    """The ledger says that none failed where its records were taken away."""
    row = TestSummary(n=81, failures=1, missing=1)
    found = failure_rate(
        Summary(suite="s", units="true", devices=1, provenance=HERE, has_plan=True, tests={"s.a": row})
    )
    assert (
        found.text == "1 of 81 failed (1 without a record): 1.23%, at least 0.06% and at most 5.7% with 95% confidence"
    )

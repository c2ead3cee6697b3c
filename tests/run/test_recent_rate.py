"""The rate of this moment, for display, against hand-computed cases."""

import pytest

from milabench_ng.records.window import SliceRow
from milabench_ng.run.execution.tenant import recent_rate


def rows(*lengths: float, count: int = 100) -> list[SliceRow]:
    """Slices one after another from 0 s on."""
    starts = [sum(lengths[:place]) for place in range(len(lengths))]
    return [SliceRow(start, length, count, 1, 0.0) for start, length in zip(starts, lengths, strict=True)]


def test_nothing_worked_yet() -> None:
    assert recent_rate([], 5.0) == 0.0


def test_the_last_five_seconds_count() -> None:
    steady = rows(*[0.5] * 60)
    assert recent_rate(steady, 30.2) == pytest.approx(200.0), "a slice in progress is no wait"
    slower = rows(*[0.5] * 40, *[1.0] * 15)  # until 35 s
    assert recent_rate(slower, 35.0) == pytest.approx(100.0)


def test_a_wait_lowers_the_rate_of_a_burst() -> None:
    burst = rows(1.0, 1.0, 1.0, 1.0)  # until 4 s
    assert recent_rate(burst, 6.9) == pytest.approx(100.0), "2.9 s: up to a slice and two seconds is no wait"
    assert recent_rate(burst, 7.1) == pytest.approx(100 / (1 + 3.1)), "one slice of the last five seconds, and the wait"
    assert recent_rate(burst, 24.0) == pytest.approx(100 / 21), "the last slice, and the wait since"


def test_long_steps_are_not_taken_for_waits() -> None:
    assert recent_rate(rows(6.0, 6.0, 6.0, count=96), 25.0) == pytest.approx(16.0)

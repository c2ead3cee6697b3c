"""Slices of another launch with a little noise are found among many launches, and not by comparing every two."""

from __future__ import annotations

import math
import random

import pytest

from milabench_ng.report.verification.checks import noisy_copies as checked
from milabench_ng.report.verification.checks.noisy_copies import noisy_copies

Launches = list[tuple[str, list[float]]]


def honest(number: int, slices: int, spread: float = 0.005) -> Launches:
    draw = random.Random(7)
    return [(f"J{at}.0", [math.log(0.5) + draw.gauss(0, spread) for _ in range(slices)]) for at in range(number)]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many slices were compared, by comparison."""
    made: list[int] = []
    alike = checked._together

    def counted(ours: list[float], theirs: list[float]) -> bool:
        made.append(len(ours))
        return alike(ours, theirs)

    monkeypatch.setattr(checked, "_together", counted)
    return made


@pytest.mark.parametrize("spread", [0.0002, 0.005, 0.08])
@pytest.mark.parametrize("slices", [30, 600])
def test_copies_among_many_launches(slices: int, spread: float, compared: list[int]) -> None:
    launches, draw = honest(300, slices, spread), random.Random(3)
    sources = range(0, 300, 10)
    for at in sources:
        _, times = launches[at]
        slower, noise = math.log(1 + at / 1000), 0.8 * checked._noise(2 * checked._spread(times))
        copy = [time + slower + draw.uniform(-noise, noise) for time in times]
        launches.append((f"copy of J{at}.0", copy))
    assert list(noisy_copies(launches)) == [(f"copy of J{at}.0", f"J{at}.0") for at in sources]
    assert len(compared) <= 2 * 3 * len(launches)  # every two would be 54,285
    assert max(compared) <= 100


def test_a_copy_without_its_beginning_or_its_end() -> None:
    launches = honest(20, 60)
    launches += [("late", launches[3][1][7:]), ("early", launches[4][1][:-5])]
    assert list(noisy_copies(launches)) == [("late", "J3.0"), ("early", "J4.0")]


@pytest.mark.parametrize("slices", [8, 10, 12, 14])
def test_few_slices_are_alike_by_chance(slices: int) -> None:
    launches = honest(400, slices, 0.0002)
    assert not list(noisy_copies(launches))
    _, times = launches[9]
    draw = random.Random(3)
    copy = [time + draw.uniform(-3e-6, 3e-6) for time in times]
    assert list(noisy_copies([*launches, ("copy", copy)])) == [("copy", "J9.0")]


def test_launches_that_look_alike_where_it_is_looked_at_first(compared: list[int]) -> None:
    """Made for it, by somebody who wants no verdict."""
    first, last = honest(2, 12)
    launches = [(name, first[1] + times + last[1]) for name, times in honest(400, 60)]
    assert not list(noisy_copies(launches))
    assert len(compared) <= 2 * 3 * 400  # every two would be 159,600


def test_launches_that_are_all_the_same() -> None:
    (_, times), *_ = honest(1, 30)
    found = list(noisy_copies([(f"J{at}.0", times) for at in range(400)]))
    assert found == [(f"J{at}.0", "J0.0") for at in range(1, 400)]
    assert not list(noisy_copies([("J0.0", [0.5] * 30), ("J1.0", [0.5] * 30)]))  # nothing rises or falls

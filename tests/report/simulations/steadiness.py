"""How often an odd course of a launch's rate is told, and how often noise alone is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from milabench_ng.analysis.launch.odd_slices import far_slice
from milabench_ng.analysis.launch.steadiness import odd_shape
from milabench_ng.records.window import SliceRow, Window
from simulations.finding import Finding, share
from simulations.model import Floats

TRIALS = 1000
FEW_TRIALS = 100
SETTLED_S, LENGTH_S, MARGIN_S = 2.0, 9.0, 1.0
SHORT, LONG = 26, 240
"""Slices of 0.5 s: of a launch of 13 s, which ends when its window is full, and of one of 2 minutes."""
NOISES = (0.01, 0.02, 0.05, 0.10)
Course = Callable[[int, np.random.Generator], Floats]
"""The rates of so many slices, 1 being usual."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Of launches with slices of 0.5 s and independent noise."""
    found = [
        share(f"noise of {noise:.0%}, {slices} slices: told", _told(rng, trials, slices, noise, _steady), high=0.025)
        for noise in NOISES
        for slices in (SHORT, LONG)
    ]
    found += [
        share(
            f"a stall of {stall_s:g} s in the window, noise of {noise:.0%}, {slices} slices",
            [_is_told(_stalled(rng, slices, noise, stall_s)) for _ in range(trials)],
            low=0.99,
        )
        for stall_s in (1.0, 2.0, 5.0)
        for noise in NOISES
        for slices in (SHORT, LONG)
    ]
    courses: tuple[tuple[str, int, Course, float], ...] = (
        ("10% slower from a moment on", SHORT, _throttled(0.10, 8, 18), 0.99),
        ("20% slower from a moment in the window on", LONG, _throttled(0.20, LONG - 16, LONG - 6), 0.99),
        ("10% slower at the end than at the start", SHORT, _drifting(0.10), -np.inf),
        ("5% slower at the end than at the start", LONG, _drifting(0.05), 0.95),
        ("swings of 10% every 15 s", LONG, _swinging, 0.99),
    )
    found += [
        share(f"{what}, noise of {noise:.0%}, {slices} slices", _told(rng, trials, slices, noise, course), low=low)
        for what, slices, course, low in courses
        for noise in (0.01, 0.02)
    ]
    return found


def _steady(slices: int, _: np.random.Generator) -> Floats:
    return np.ones(slices)


def _throttled(by: float, first: int, last: int) -> Course:
    """Slower from one of these slices on."""
    return lambda slices, rng: 1 - by * (np.arange(slices) >= rng.integers(first, last))


def _drifting(by: float) -> Course:
    return lambda slices, _: 1 - by * np.arange(slices) / slices


def _swinging(slices: int, _: np.random.Generator) -> Floats:
    return 1 - 0.1 * ((np.arange(slices) % 30) / 30)


def _told(rng: np.random.Generator, trials: int, slices: int, noise: float, course: Course) -> list[bool]:
    return [_is_told(_rows(course(slices, rng) * (1 + noise * rng.standard_normal(slices)))) for _ in range(trials)]


def _rows(rates: Floats, lengths: Floats | None = None) -> list[SliceRow]:
    lengths = np.full(len(rates), 0.5) if lengths is None else lengths
    starts = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
    return [
        SliceRow(float(start), float(length), max(0, round(1e6 * rate)), 5, 0.0)
        for start, length, rate in zip(starts, lengths, 0.5 * rates, strict=True)
    ]


def _stalled(rng: np.random.Generator, slices: int, noise: float, stall_s: float) -> list[SliceRow]:
    """Nothing is done for a while in one of the slices wholly inside the window."""
    rates = 1 + noise * rng.standard_normal(slices)
    lengths = np.full(slices, 0.5)
    lengths[rng.integers(slices - 12, slices - 4)] += stall_s
    return _rows(rates, lengths)


def _is_told(rows: list[SliceRow]) -> bool:
    end = rows[-1].end_s - MARGIN_S
    window = Window(start_s=end - LENGTH_S, end_s=end)
    shape = odd_shape(rows, min(window.start_s, SETTLED_S), window.start_s, end)
    return shape is not None or far_slice(rows, window, 0.0) is not None

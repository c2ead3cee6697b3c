"""What the intervals, verdicts and calls of slow devices do on made-up runs whose truth is known.

The formulas of `report.intervals` and `report.verdict` once more, over many trials at a time; ``test_simulated.py``
holds both to the same numbers. ``scripts/simulate-intervals`` prints the tables of ``docs/methodology.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Floats = NDArray[np.float64]

TRIALS = 20_000
SEED = 20260106
RUN_CV = (0.005, 0.04)
"""Tests differ in noise: coefficients of variation from run to run, drawn evenly between these on a log scale."""
MARGIN = float(np.log1p(0.02))


class Sums(msgspec.Struct, frozen=True):
    """For every trial: the estimated log ratio, its standard error and degrees of freedom."""

    estimate: Floats
    error: Floats
    df: Floats

    def covers(self, truth: float, level: float = 0.95) -> Floats:
        """Whether the interval holds the truth."""
        half = stdtrit(self.df, (1 + level) / 2) * self.error
        return np.asarray(np.abs(self.estimate - truth) <= half)

    @property
    def p(self) -> Floats:
        """Of the verdict: the interval that just reaches the nearer edge of the margin."""
        return np.asarray(2 * stdtr(self.df, -np.abs(np.abs(self.estimate) - MARGIN) / self.error))

    def equivalent(self, p: Floats) -> Floats:
        """Whether the verdict is equivalent."""
        return np.asarray((p < 0.05) & (np.abs(self.estimate) < MARGIN))

    def different(self, p: Floats) -> Floats:
        """Whether the verdict is better or worse."""
        return np.asarray((p < 0.05) & (np.abs(self.estimate) > MARGIN))

    def false(self, p: Floats, truth: float) -> Floats:
        """Whether the verdict is false. At the edge of the margin every one is."""
        different, wrong_way = self.different(p), np.sign(self.estimate) != np.sign(truth)
        if abs(abs(truth) - MARGIN) < 1e-9:
            return np.asarray(different | self.equivalent(p))
        return np.asarray(different if abs(truth) < MARGIN else self.equivalent(p) | different & wrong_way)


def rates(
    rng: np.random.Generator,
    tests: int,
    n: int,
    effect: Floats | float = 0.0,
    outliers: float = 0.0,
    shared: float = 0.0,
    trials: int = TRIALS,
) -> Floats:
    """Rates of shape (trials, tests, n): normal about ``exp(effect)``, one for all tests or one for each.

    ``outliers``: the part of the repeats that are 10 % slower; ``shared``: the standard deviation of what all tests of
    a repeat have in common.
    """
    cv = np.exp(np.linspace(np.log(RUN_CV[0]), np.log(RUN_CV[1]), tests))[None, :, None]
    noise = 1 + cv * rng.standard_normal((trials, tests, n)) + shared * rng.standard_normal((trials, 1, n))
    slow = 0.9 if outliers else 1.0
    truth = np.exp(np.broadcast_to(effect, tests))[None, :, None]
    return np.asarray(truth * noise * np.where(rng.random((trials, tests, n)) < outliers, slow, 1.0))


def weights(tests: int) -> Floats:
    """Like those of the standard suite: 4, 8, 8, 8 ... over their sum."""
    raw = np.where(np.arange(tests) % 4 == 0, 4.0, 8.0)
    return np.asarray(raw / raw.sum())


def sums(run: Floats, base: Floats | None, coefficients: Floats) -> Sums:
    """The weighted sum over the tests (axis 1), of one side or of the difference of two."""
    estimate, variance, squares = 0.0, 0.0, 0.0
    for sign, side in ((1, run), (-1, base)):
        if side is None:
            continue
        logs = np.log(side)
        n = side.shape[2]
        terms = coefficients**2 * logs.var(axis=2, ddof=1) / n
        estimate = estimate + sign * (coefficients * logs.mean(axis=2)).sum(axis=1)
        variance = variance + terms.sum(axis=1)
        squares = squares + (terms**2 / (n - 1)).sum(axis=1)
    return Sums(np.asarray(estimate), np.sqrt(variance), np.asarray(variance**2 / squares))


def by_repeat(side: Floats, coefficients: Floats) -> Floats:
    """The tests as one: the weighted geometric mean of every repeat."""
    return np.asarray(np.exp((coefficients[:, None] * np.log(side)).sum(axis=1, keepdims=True)))


def each(run: Floats, base: Floats) -> list[Sums]:
    """Every test by itself."""
    one = np.ones(1)
    return [sums(run[:, i : i + 1], base[:, i : i + 1], one) for i in range(run.shape[1])]


def holm(p: Floats) -> Floats:
    """Adjusted over the tests, of shape (tests, trials)."""
    order = np.argsort(p, axis=0)
    steps = np.take_along_axis(p, order, axis=0) * np.arange(p.shape[0], 0, -1)[:, None]
    adjusted = np.minimum(1, np.maximum.accumulate(steps, axis=0))
    back = np.empty_like(adjusted)
    np.put_along_axis(back, order, adjusted, axis=0)
    return back


def coverage(tests: int, n: int, sides: int, *, aligned: bool = True, seed: int = SEED, **how: Any) -> float:
    """Of the nominal 95 % interval: of a score (one side) or of a ratio (two).

    ``aligned``: all tests have the same repeats, as in a complete run; else each test is a part of its own.
    """
    rng = np.random.default_rng([seed, tests, n, sides])
    run = rates(rng, tests, n, **how)
    base = rates(rng, tests, n, **how) if sides == 2 else None
    truth = 0.0 if base is not None else _true_score(rates(rng, tests, 1000, trials=200, **how), tests)
    coefficients = weights(tests)
    if aligned:
        run, base = by_repeat(run, coefficients), None if base is None else by_repeat(base, coefficients)
        coefficients = np.ones(1)
    found = sums(run, base, coefficients)
    return float(np.mean(found.covers(truth)))


def _true_score(many: Floats, tests: int) -> float:
    """The score's logarithm over very many repeats."""
    return float((weights(tests) * np.log(many).mean(axis=2)).sum(axis=1).mean())


def verdicts(
    tests: int,
    n: int,
    effect: Floats | float,
    shared: float = 0.0,
    trials: int = TRIALS,
    seed: int = SEED,
) -> dict[str, float]:
    """How often which verdict is given, of the whole and of single tests. ``effect``: the true log ratio, or one a
    test."""
    rng = np.random.default_rng([seed, tests, n])
    run = rates(rng, tests, n, effect, shared=shared, trials=trials)
    base = rates(rng, tests, n, shared=shared, trials=trials)
    truths = np.broadcast_to(effect, tests)
    whole = sums(*(by_repeat(side, weights(tests)) for side in (run, base)), np.ones(1))
    single = each(run, base)
    adjusted = holm(np.array([one.p for one in single]))
    different = np.array([one.different(p) for one, p in zip(single, adjusted, strict=True)])
    equivalent = np.array([one.equivalent(p) for one, p in zip(single, adjusted, strict=True)])
    false = np.array([one.false(p, at) for one, p, at in zip(single, adjusted, truths, strict=True)])
    bare = np.array([one.false(one.p, at) for one, at in zip(single, truths, strict=True)])
    large = np.abs(truths) > MARGIN - 1e-9
    return {
        "different": float(np.mean(whole.different(whole.p))),
        "equivalent": float(np.mean(whole.equivalent(whole.p))),
        "false": float(np.mean(whole.false(whole.p, float(weights(tests) @ truths)))),
        "a test different": float(np.mean(different)),
        "any test different": float(np.mean(different.any(axis=0))),
        "a test equivalent": float(np.mean(equivalent)),
        "any test falsely equivalent": float(np.mean(equivalent[large].any(axis=0))),
        "any test false": float(np.mean(false.any(axis=0))),
        "any test false without Holm": float(np.mean(bare.any(axis=0))),
    }


def slow_devices(devices: int, spread: float, slow: float, trials: int = 2000, seed: int = SEED) -> tuple[float, float]:
    """How often a slowed device is called slow, and how often any healthy one is."""
    from milabench_ng.report.scoring.slow_devices import stragglers

    rng = np.random.default_rng([seed, devices])
    hit = wrong = 0
    for _ in range(trials):
        logs = spread * rng.standard_normal(devices)
        logs[0] += np.log1p(-slow)
        called = {one.device for one in stragglers({str(i): float(log) for i, log in enumerate(logs)}, None)}
        hit += "0" in called
        wrong += bool(called - {"0"})
    return hit / trials, wrong / trials


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one as Markdown."""
    print(f"\n{title}\n")
    for row in (headings, ["---:"] * len(headings), *rows):
        print("| " + " | ".join(row) + " |")


def main() -> None:
    """Print all tables."""
    print(f"numpy {np.__version__}, python {sys.version.split()[0]}, {TRIALS:,} trials each, seed {SEED}")
    slow, shared = {"outliers": 0.05}, {"shared": 0.005}
    cases: list[tuple[str, int, int, dict[str, Any]]] = [
        ("one test, ratio", 1, 2, {}),
        ("one test, ratio, 5 % of repeats 10 % slow", 1, 2, slow),
        ("score, 12 tests", 12, 1, {}),
        ("ratio, 12 tests", 12, 2, {}),
        ("ratio, 18 tests", 18, 2, {}),
        ("ratio, 12 tests, 5 % of repeats 10 % slow", 12, 2, slow),
        ("ratio, 12 tests, repeats share 0.5 %", 12, 2, shared),
        ("ratio, 12 tests, a part each", 12, 2, {"aligned": False}),
        ("ratio, 12 tests, a part each, repeats share 0.5 %", 12, 2, {"aligned": False} | shared),
    ]
    table(
        "Coverage of the nominal 95 % interval, in percent, by repeats (of each side)",
        ["what", "n = 3", "n = 5", "n = 10", "n = 20"],
        [
            [name, *(f"{100 * coverage(tests, n, sides, **how):.1f}" for n in (3, 5, 10, 20))]
            for name, tests, sides, how in cases
        ],
    )
    ratios = (1.0, 1.005, 1.01, 1.015, 1.02, 1.03, 1.05)
    found = {
        (ratio, n): verdicts(12, n, MARGIN if ratio == 1.02 else float(np.log(ratio)))
        for ratio in ratios
        for n in (5, 10, 20)
    }
    table(
        "How often a verdict is given, in percent: 12 tests on each side, margin 2 %",
        ["true ratio", "n", *found[1.0, 5]],
        [
            [f"{ratio:g}", str(n), *(f"{100 * share:.1f}" for share in shares.values())]
            for (ratio, n), shares in found.items()
        ],
    )
    table(
        "How often a device is called slow, in percent of 2,000 nodes",
        ["devices", "spread of healthy devices", "slowed by", "it is called", "a healthy one is called"],
        [
            [str(devices), f"{spread:.1%}", f"{slow:.0%}", *(f"{100 * share:.1f}" for share in found)]
            for devices in (2, 4, 8, 16)
            for spread, slow in ((0.005, 0.0), (0.01, 0.0), (0.005, 0.05), (0.01, 0.05), (0.01, 0.10))
            for found in [slow_devices(devices, spread, slow)]
        ],
    )


if __name__ == "__main__":
    main()

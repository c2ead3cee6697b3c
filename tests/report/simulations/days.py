"""What intervals, ranks and acceptance are worth where the host is another one every day.

The standard suite's shares: tests that the host bounds have 54 % of the weight and share its day. Everything is drawn
at once, by the formulas of the report (`model`).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtr, stdtrit

from milabench_ng.analysis.scoring.other_machine import GPU_DAY_STD, GPU_STD, HOST_DAY_STD, HOST_STD
from milabench_ng.analysis.statistics.intervals import RANKED_FROM, SESSIONS_FROM
from simulations.finding import Finding, share
from simulations.model import RUN_CV, Floats

TRIALS = 20_000
FEW_TRIALS = 1000
TESTS = 19
HOST = np.arange(TESTS) % 2 == 0
WEIGHTS = np.where(HOST, 0.54 / HOST.sum(), 0.46 / (~HOST).sum())
CV = np.exp(np.linspace(*np.log(RUN_CV), TESTS))
GUARANTEE = 0.97


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """At days that differ by 3 and by 5 % on the host, 0.5 % on the GPU."""
    found = []
    highest = stated(0.05, trials)
    for host in (0.03, 0.05):
        for sessions, each in ((1, 1), (1, 2), (1, 3), (1, 5), (1, 10), (3, 1), (3, 2), (3, 3), (3, 5), (3, 10)):
            name = f"host days {host:.0%}, {sessions} x {each} repeats"
            found += _coverage(rng, trials, name, host, sessions, each)
        for sessions, each in ((1, 5), (1, 10), (3, 2), (3, 5)):
            name = f"host days {host:.0%}, {sessions} x {each} repeats"
            found += _decisions(rng, trials, name, _sides(rng, trials, host, sessions, each), highest)
    return [*found, *(one for host in (0.03, 0.05) for one in _back_to_back(rng, trials, host, highest))]


def _back_to_back(rng: np.random.Generator, trials: int, host: float, highest: float) -> list[Finding]:
    """Three sessions of one day, counted as three, and as the one that they are."""
    one_day = _sides(rng, trials, host, 1, 15)
    as_three = [logs.reshape(trials, TESTS, 3, 5) for logs in one_day]
    name = f"host days {host:.0%}, 3 x 5 repeats back to back, counted as"
    return [
        *_decisions(rng, trials, f"{name} three sessions, as before", as_three, np.inf),
        *_decisions(rng, trials, f"{name} one session", one_day, highest),
    ]


def stated(rate: float, trials: int) -> float:
    """What at most is measured of an event of this rate: three binomial standard errors of the trials more.

    Of 740 lines whose rate is exactly the stated one, one measures more.
    """
    return rate + 3 * math.sqrt(rate * (1 - rate) / trials)


def _logs(rng: np.random.Generator, trials: int, host: float, sessions: int, each: int) -> tuple[Floats, Floats]:
    """Logarithms of rates of shape (trials, tests, sessions, repeats), and what their days did to them."""
    draws = rng.standard_normal((trials, 2, sessions))
    days = np.where(HOST[None, :, None], host * draws[:, :1], GPU_DAY_STD * draws[:, 1:])
    noise = CV[None, :, None, None] * rng.standard_normal((trials, TESTS, sessions, each))
    return np.asarray(days[..., None] + noise), np.asarray(days)


def _sides(rng: np.random.Generator, trials: int, host: float, sessions: int, each: int) -> list[Floats]:
    """The logarithms of two equal nodes."""
    return [_logs(rng, trials, host, sessions, each)[0] for _ in range(2)]


def _estimated(logs: Floats) -> tuple[Floats, Floats, int]:
    """Means over the last two axes, their variances, and degrees of freedom: of sessions, if these are enough."""
    sessions, each = logs.shape[-2:]
    values = logs.mean(axis=-1) if sessions >= SESSIONS_FROM else logs.reshape(*logs.shape[:-2], sessions * each)
    n = values.shape[-1]
    return values.mean(axis=-1), values.var(axis=-1, ddof=1) / n, n - 1


def _coverage(rng: np.random.Generator, trials: int, name: str, host: float, sessions: int, each: int) -> list[Finding]:
    """Of a score (one side) and of a ratio (two): of these days, and of any."""
    sides = [_logs(rng, trials, host, sessions, each) for _ in range(2)]
    whole = [np.tensordot(WEIGHTS, logs, axes=(0, 1)) for logs, _ in sides]
    these = [np.tensordot(WEIGHTS, days, axes=(0, 1)).mean(axis=-1) for _, days in sides]
    if sessions * each < RANKED_FROM:
        return _ranges(name, whole[0], these[0]) if sessions * each > 1 else []
    (a, va, df), (b, vb, _) = (_estimated(side) for side in whole)
    df2 = (va + vb) ** 2 * df / (va**2 + vb**2)
    own, both = (stdtrit(df, 0.975) * np.sqrt(va), stdtrit(df2, 0.975) * np.sqrt(va + vb))
    days = sessions >= SESSIONS_FROM
    limits = {"low": 0.93, "high": 0.97 if not days else 0.985}
    found = [
        share(
            f"{name}: score holds {'any day' if days else 'this day'}",
            np.abs(a - (0 if days else these[0])) <= own,
            **limits,
        ),
        share(
            f"{name}: ratio holds {'any day' if days else 'these days'}",
            np.abs(a - b - (0 if days else these[0] - these[1])) <= both,
            **limits,
        ),
    ]
    if days:
        return found
    other = np.tensordot(WEIGHTS, _logs(rng, trials, host, 1, 1)[1], axes=(0, 1))[:, 0]
    told = 1.959964 * math.sqrt(2 * _variance(GPU_DAY_STD, HOST_DAY_STD))
    return [
        *found,
        share(f"{name}: score holds any day, which is not claimed", np.abs(a) <= own),
        share(
            f"{name}: another day differs by no more than the first screen says",
            np.abs(other - these[0]) <= told,
            low=0.93,
        ),
    ]


def _ranges(name: str, logs: Floats, these: Floats) -> list[Finding]:
    values = logs.reshape(len(logs), -1)
    held = (values.min(axis=1) <= these) & (these <= values.max(axis=1))
    return [share(f"{name}: the range of the repeats holds these days, which is not claimed", held)]


def _variance(gpu: float, host: float) -> float:
    return float((gpu * 0.46) ** 2 + (host * 0.54) ** 2)


def _decisions(rng: np.random.Generator, trials: int, name: str, sides: list[Floats], highest: float) -> list[Finding]:
    """Equal bids that are ranked apart, and the two risks of acceptance at its guarantee and at equal nodes.

    ``sides``: logarithms as of `_logs`; ``highest``: of each of these rates.
    """
    sessions = sides[0].shape[2]
    machines = rng.standard_normal((trials, 2, 2)) * (GPU_STD * 0.46, HOST_STD * 0.54)
    whole = [np.tensordot(WEIGHTS, logs, axes=(0, 1)) for logs in sides]
    (a, va, df), (b, vb, _) = (_estimated(side) for side in whole)
    days = 0.0 if sessions >= SESSIONS_FROM else 1.0
    declared = 2 * (_variance(GPU_STD, HOST_STD) + days * _variance(GPU_DAY_STD, HOST_DAY_STD))
    p = _p(a - b + machines.sum(axis=2) @ np.array([1.0, -1.0]), declared, va, vb, df)
    just, equal = (_accepted(sides, days, away) for away in (0.0, -math.log(GUARANTEE)))
    return [
        share(f"{name}: equal bids are ranked apart", p < 0.05, high=highest),
        share(f"{name}: a node just at the guarantee keeps it (consumer's risk)", just[0], high=highest),
        share(
            f"{name}: an equal node breaks it (producer's risk)",
            equal[1],
            high=0.05 if np.isfinite(highest) else np.inf,
        ),
        share(f"{name}: an equal node keeps it", equal[0]),
    ]


def _p(mean: Floats, declared: float, va: Floats, vb: Floats, df: int) -> Floats:
    """Two-sided, with a declared variance that is known exactly."""
    total = va + vb + declared
    return np.asarray(2 * stdtr(total**2 * df / (va**2 + vb**2), -np.abs(mean) / np.sqrt(total)))


def _accepted(sides: list[Floats], days: float, away: float) -> tuple[Floats, Floats]:
    """Whether nodes whose true ratio is ``away`` above the guarantee keep it, and whether they break it."""
    whole = [np.tensordot(WEIGHTS, logs, axes=(0, 1))[:, None] for logs in sides]
    variances = np.where(HOST, HOST_DAY_STD**2, GPU_DAY_STD**2) * 2 * days
    score = _one_sided(whole, np.array([2 * days * _variance(GPU_DAY_STD, HOST_DAY_STD)]), away)
    tests = _one_sided(sides, variances, away)
    broken = (np.concatenate([score, tests], axis=1) < 0.05 / (1 + TESTS)).any(axis=1)
    return np.asarray((score[:, 0] > 0.95) & ~broken), np.asarray(broken)


def _one_sided(sides: list[Floats], declared: Floats, away: float) -> Floats:
    """The probability of a ratio as low if the guarantee is just kept."""
    (a, va, df), (b, vb, _) = (_estimated(side) for side in sides)
    total = va + vb + declared
    return np.asarray(stdtr(total**2 * df / (va**2 + vb**2), (a - b + away) / np.sqrt(total)))

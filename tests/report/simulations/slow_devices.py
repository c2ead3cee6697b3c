"""How often a slowed device is called slow over all tests, and how often one that is not is called so anywhere.

Tenants of a noisy host vary four times as much, each by itself. Where devices drift, each is faster or slower by 2 % in
a whole repeat.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from milabench_ng.analysis.scoring.device_gaps import Matrix, device_gaps, gaps_over_tests, layout
from milabench_ng.analysis.scoring.slow_devices import slow_among
from simulations.finding import Finding, share
from simulations.model import RUN_CV, Floats

TRIALS = 1000
FEW_TRIALS = 40
TESTS = 12
DEVICE_CV = 0.005
"""How much healthy devices of a model differ in a test."""
SHARED = 0.01
"""What the launches of a batch have in common: the state of the node."""
NOISE = {"quiet": 1.0, "noisy": 4.0}
DRIFT = 0.02
STALL = 0.2
EDGE = 0.03
"""What a device may be slower by: a verdict on it is false in the most runs."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Nodes of 2 and of 8 devices; device 0 is slowed or not at all."""
    found = []
    for devices in (2, 8):
        for repeats in (3, 5, 10):
            for host, noise in NOISE.items():
                node = f"{devices} devices, {repeats} repeats, {host} host"
                for what, slow, drift in (
                    ("all healthy", 0.0, 0.0),
                    ("one 3% slow", EDGE, 0.0),
                    ("one 3% slow, devices drift", EDGE, DRIFT),
                ):
                    called = [_called(_logs(rng, devices, repeats, slow, noise, drift)) for _ in range(trials)]
                    found.append(share(f"{node}, {what}: any is called slow", [bool(one) for one in called], high=0.05))
                for slow in (0.05, 0.15):
                    called = [_called(_logs(rng, devices, repeats, slow, noise)) for _ in range(trials)]
                    what = f"{node}, one {100 * slow:g}% slow: it is called so over all tests"
                    hits = [("0", None) in one for one in called]
                    found.append(share(what, hits, low=_wanted(devices, repeats, host, slow)))
    return found + [one for devices in (2, 8) for repeats in (3, 5) for one in _stalled(rng, trials, devices, repeats)]


def _stalled(rng: np.random.Generator, trials: int, devices: int, repeats: int) -> Iterator[Finding]:
    """Healthy nodes of which one launch in ten is 20 % slow."""
    stalls = (np.log1p(-STALL) * (rng.random((TESTS, repeats, devices)) < 0.1) for _ in range(trials))
    called = [_called(_logs(rng, devices, repeats, 0.0, 1.0) + each) for each in stalls]
    node = f"{devices} devices, {repeats} repeats, all healthy, one launch in ten 20% slow"
    yield share(f"{node}: any is called slow in a test", [bool(one) for one in called])
    over = [any(test is None for _, test in one) for one in called]
    yield share(f"{node}: any is called so over all tests", over, high=0.05)


def _wanted(devices: int, repeats: int, host: str, slow: float) -> float:
    """The power that is claimed."""
    if slow > 0.1:
        return 0.95
    return 0.95 if host == "quiet" and (devices == 8 or repeats >= 5) else -np.inf


def _called(logs: Floats) -> set[tuple[str, str | None]]:
    """What is called slow, and in which test."""
    layouts = [made for test in logs if (made := layout(_matrix(test)))]
    gaps = [gap for label, made in enumerate(layouts) for gap in device_gaps(made, f"quick.{label}")]
    return {(one.device, one.test) for one in slow_among(gaps + gaps_over_tests(layouts))}


def _logs(
    rng: np.random.Generator, devices: int, repeats: int, slow: float, noise: float, drift: float = 0.0
) -> Floats:
    """Of shape (tests, repeats, devices). At the edge devices do not differ otherwise."""
    cv = noise * np.exp(np.linspace(*np.log(RUN_CV), TESTS))[:, None, None]
    logs = cv * rng.standard_normal((TESTS, repeats, devices)) + SHARED * rng.standard_normal((TESTS, repeats, 1))
    logs += drift * rng.standard_normal((repeats, devices))
    logs += (0.0 if slow == EDGE else DEVICE_CV) * rng.standard_normal((TESTS, 1, devices))
    logs[:, :, 0] += np.log1p(-slow)
    return np.asarray(logs)


def _matrix(logs: Floats) -> Matrix:
    return {
        str(repeat): {str(device): float(value) for device, value in enumerate(row)} for repeat, row in enumerate(logs)
    }

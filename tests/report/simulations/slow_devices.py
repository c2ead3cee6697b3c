"""How often a slowed device is called slow, and how often a healthy node has a device that is."""

from __future__ import annotations

import numpy as np

from milabench_ng.analysis.scoring.slow_devices import device_gaps, over_tests, slow_among
from simulations.finding import Finding, share
from simulations.model import RUN_CV, Floats

TRIALS = 1000
FEW_TRIALS = 60
TESTS = 17
DEVICE_CV = 0.005
"""How much healthy devices of a model differ in a test."""
SHARED = 0.01
"""What the launches of a repeat have in common: the state of the node."""


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Nodes of 2 and of 8 devices; device 0 is slowed by 5 % or not at all."""
    found = []
    for devices in (2, 8):
        for repeats in (1, 3, 5, 10):
            node = f"{devices} devices, {repeats} repeat{'s' if repeats > 1 else ''}"
            healthy = [_called(rng, devices, repeats, 0.0) for _ in range(trials)]
            found.append(
                share(f"{node}, all healthy: any is called slow", [bool(names) for names in healthy], high=0.05)
            )
            slowed = [_called(rng, devices, repeats, 0.05) for _ in range(trials)]
            wanted = 0.85 if devices == 8 and repeats >= 5 else -np.inf
            found.append(share(f"{node}, one 5 % slow: it is called", ["0" in names for names in slowed], low=wanted))
    return found


def _called(rng: np.random.Generator, devices: int, repeats: int, slow: float) -> set[str]:
    """The devices that are called slow in any test or over all."""
    matrices = [_matrix(made) for made in _logs(rng, devices, repeats, slow)]
    gaps = [gap for label, made in enumerate(matrices) for gap in device_gaps(made, f"quick.{label}")]
    return {one.device for one in slow_among(gaps + device_gaps(over_tests(matrices), None))}


def _logs(rng: np.random.Generator, devices: int, repeats: int, slow: float) -> Floats:
    """Of shape (tests, repeats, devices)."""
    cv = np.exp(np.linspace(*np.log(RUN_CV), TESTS))[:, None, None]
    logs = cv * rng.standard_normal((TESTS, repeats, devices)) + SHARED * rng.standard_normal((TESTS, repeats, 1))
    logs += DEVICE_CV * rng.standard_normal((TESTS, 1, devices))
    logs[:, :, 0] += np.log1p(-slow)
    return np.asarray(logs)


def _matrix(logs: Floats) -> dict[str, dict[str, float]]:
    return {
        str(repeat): {str(device): float(value) for device, value in enumerate(row)} for repeat, row in enumerate(logs)
    }

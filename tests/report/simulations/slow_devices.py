"""How often a slowed device is called slow, and how often a healthy one is."""

from __future__ import annotations

import numpy as np

from milabench_ng.report.scoring.slow_devices import stragglers
from simulations.finding import Finding, share

TRIALS = 2000
FEW_TRIALS = 200


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Nodes of 2 to 16 devices; device 0 is slowed."""
    found = []
    for devices in (2, 4, 8, 16):
        for spread, slow in ((0.01, 0.0), (0.01, 0.05), (0.01, 0.10)):
            called = [_called(rng, devices, spread, slow) for _ in range(trials)]
            node = f"{devices} devices that differ by {spread:.0%}, one slowed by {slow:.0%}"
            found.append(share(f"{node}: it is called", ["0" in names for names in called]))
            found.append(
                share(f"{node}: a healthy one is called", [bool(names - {"0"}) for names in called], high=0.05)
            )
    return found


def _called(rng: np.random.Generator, devices: int, spread: float, slow: float) -> set[str]:
    logs = spread * rng.standard_normal(devices)
    logs[0] += np.log1p(-slow)
    return {one.device for one in stragglers({str(i): float(log) for i, log in enumerate(logs)}, None)}

"""Reads what surrounds a batch, at its edges."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from milabench_ng.fence.claims import Claim
from milabench_ng.fence.kernel.quotas import cpu_limits
from milabench_ng.records.surroundings import Surroundings


def read_surroundings(
    above: str, shares: Mapping[str, tuple[int, ...]], claim: Claim, own: Iterable[int]
) -> Surroundings:
    """What surrounds a batch now.

    ``above``: the group above its tenants, empty if it cannot be seen; ``shares``: their CPUs, by slot; ``own``: the
    processes of mnb itself.
    """
    return Surroundings(
        time_s=time.monotonic(),
        cpus=sum(map(len, shares.values())),
        cpu_limits=cpu_limits(Path(above)) if above else (),
        contested=claim.contested(),
        machinery_cpu_s=sum(map(_cpu_s, own)),
    )


def _cpu_s(pid: int) -> float:
    """User and system time of a process; 0 for one that is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)

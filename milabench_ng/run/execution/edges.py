"""Reads what surrounds a batch, at its edges."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from milabench_ng.fence.claims import Claim
from milabench_ng.fence.kernel.quotas import cpu_limits
from milabench_ng.records.surroundings import Surroundings


class Machinery:
    """What mnb's own processes have used. One that ends keeps what it had used when last seen, so the sum only rises.

    A worker server that was killed and started again would otherwise look like a counter that was set back.
    """

    def __init__(self) -> None:
        self._used: dict[psutil.Process, float] = {}

    def cpu_s(self, own: Iterable[int]) -> float:
        """User and system time of the processes ``own``, and of all that were asked for before."""
        for pid in own:
            with suppress(psutil.Error):  # it is gone
                process = psutil.Process(pid)
                times = process.cpu_times()
                self._used[process] = float(times.user + times.system)
        return sum(self._used.values())


def read_surroundings(
    above: str, shares: Mapping[str, tuple[int, ...]], claim: Claim, machinery_cpu_s: float
) -> Surroundings:
    """What surrounds a batch now.

    ``above``: the group above its tenants, empty if it cannot be seen; ``shares``: their CPUs, by slot.
    """
    return Surroundings(
        time_s=time.monotonic(),
        cpus=sum(map(len, shares.values())),
        cpu_limits=cpu_limits(Path(above)) if above else (),
        contested=claim.contested(),
        machinery_cpu_s=machinery_cpu_s,
    )

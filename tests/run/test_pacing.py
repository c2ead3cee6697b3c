"""Measuring the host pace: real threads on real cores, and cores that cannot be used."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence

from milabench_ng.records.host_pace import CpuPace
from milabench_ng.run.execution import pacing
from milabench_ng.run.execution.pacing import BURSTS, LIBRARY, read_host_pace, work_at_once

CPUS = sorted(os.sched_getaffinity(0))
NOT_THERE = 4095
"""Not of this machine."""


def test_every_core_works_and_nothing_of_it_is_left() -> None:
    threads, affinity = threading.active_count(), os.sched_getaffinity(0)
    found = work_at_once(CPUS)
    assert set(found) == set(CPUS)
    assert all(pace.mb_per_s > 0 and 0 < pace.on_cpu <= 1 for pace in found.values())
    assert threading.active_count() == threads
    assert os.sched_getaffinity(0) == affinity


def test_threads_are_on_their_cores(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    seen = []
    timed = pacing._timed

    def where(squeeze) -> CpuPace:  # type: ignore[no-untyped-def]
        seen.append(os.sched_getaffinity(0))
        return timed(squeeze)

    monkeypatch.setattr(pacing, "_timed", where)
    work_at_once(CPUS)
    assert sorted(min(cpus) for cpus in seen) == CPUS
    assert {len(cpus) for cpus in seen} == {1}


def test_each_round_is_the_same_work() -> None:
    """The compressor forgets: the same bytes come out of every round."""
    squeeze = pacing.zlib.compressobj(pacing.zlib.Z_BEST_SPEED)
    rounds = [squeeze.compress(pacing.TEXT) + squeeze.flush(pacing.zlib.Z_FULL_FLUSH) for _ in range(3)]
    assert len(pacing.TEXT) == 128 << 10
    assert rounds[1] == rounds[2]
    assert 0.3 * len(pacing.TEXT) < len(rounds[1]) < 0.9 * len(pacing.TEXT)


def test_shares_are_measured_together_and_told_apart() -> None:
    asked = []

    def burst(cpus: Sequence[int]) -> Mapping[int, CpuPace]:
        asked.append(tuple(cpus))
        return {cpu: CpuPace(100.0 - 10 * cpu, 1.0) for cpu in cpus}

    found = asyncio.run(read_host_pace({"0": (0, 1), "1": (2, 3)}, burst))
    assert asked == [(0, 1, 2, 3)] * BURSTS
    assert [found["0"].mb_per_s, found["1"].mb_per_s] == [95.0, 75.0]
    assert (found["1"].cpu_min, found["1"].slowest_cpu, found["1"].cpu_max) == (70.0, 3, 80.0)
    assert found["0"].library == LIBRARY
    assert found["0"].problem is None


def test_a_core_that_may_not_be_used_is_a_reason_and_no_crash() -> None:
    threads = threading.active_count()
    found = asyncio.run(read_host_pace({"0": CPUS[:1], "1": (NOT_THERE,)}, work_at_once))
    why = f"CPU {NOT_THERE} may not be used by this process: Invalid argument"
    assert [found["0"].problem, found["1"].problem] == [why, why]
    assert found["0"].mb_per_s is None
    assert threading.active_count() == threads


def test_without_threads_there_is_a_reason_too(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pacing.threading, "Thread", Refused)
    found = asyncio.run(read_host_pace({"0": CPUS}, work_at_once))
    assert found["0"].problem == f"no threads for {len(CPUS)} CPUs can be started"

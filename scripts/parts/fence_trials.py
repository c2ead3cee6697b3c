"""Trials of a fence with real processes: a working tenant, and another whose hogs want all CPUs of the node.

Used by `scripts/bench-fence` and `scripts/check-fence-gpu`. Only comparisons are meaningful: the same work in the same
group, alone and alongside hogs, fenced and not, in turn.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from milabench_ng.fence.interface import Group
from milabench_ng.fence.killing import signal_child
from milabench_ng.fence.sharing.shares import PAGE_BYTES, Allocation
from milabench_ng.records.isolation import Share

_HOG = "print('in', flush=True)\nwhile True: pass"
_WORK = """
import time
began = time.perf_counter()
for _ in range({steps}): pass
print(time.perf_counter() - began)
"""
STEPS = 25_000_000
"""Steps of the timed work: about half a second on an exclusive CPU."""


class TrialPair(msgspec.Struct, frozen=True):
    """Two neighbours behind the same fence."""

    victim: Group
    aggressor: Group


class Round(msgspec.Struct, frozen=True):
    """Seconds that the victim took: alone, alongside the hogs, and alone again, in immediate succession."""

    before_s: float
    beside_s: float
    after_s: float

    @property
    def ratio(self) -> float:
        """Slowdown by the hogs; 1.0: none."""
        return 2 * self.beside_s / (self.before_s + self.after_s)

    @property
    def scatter(self) -> float:
        """Relative difference of the two controls: the effect of everything else."""
        return abs(self.before_s - self.after_s) / min(self.before_s, self.after_s)


class Slowdown(msgspec.Struct, frozen=True):
    """The hogs' effect on the victim. All figures are medians over the rounds, each with its own controls."""

    rounds: tuple[Round, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(one.ratio for one in self.rounds)

    @property
    def scatter(self) -> float:
        return statistics.median(one.scatter for one in self.rounds)

    @property
    def alone_s(self) -> float:
        return statistics.median((one.before_s + one.after_s) / 2 for one in self.rounds)

    @property
    def beside_hogs_s(self) -> float:
        return statistics.median(one.beside_s for one in self.rounds)


def spawn(group: Group, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a command inside `group`; it is killed when this process ends."""
    pipe = subprocess.PIPE
    env = None if environment is None else dict(environment)
    return subprocess.Popen(group.entry.command(argv), stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)


def python(source: str) -> list[str]:
    """The command line of a bare interpreter that runs `source`."""
    return [sys.executable, "-I", "-S", "-c", source]


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Kill those still running and wait for all."""
    for process in processes:
        signal_child(process, signal.SIGKILL)
    for process in processes:
        process.communicate()


def working_s(group: Group) -> float:
    """Seconds for fixed work on all CPUs of the group's share at once, mean of the processes."""
    workers = [spawn(group, python(_WORK.format(steps=STEPS))) for _ in group.share.cpus]
    return statistics.mean(float(worker.communicate()[0]) for worker in workers)


@contextlib.contextmanager
def hogs(group: Group, count: int) -> Iterator[None]:
    """Run `count` busy processes in `group`."""
    started = [spawn(group, python(_HOG)) for _ in range(count)]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        end(started)


def slowdowns(pairs: Mapping[str, TrialPair], count: int, rounds: int) -> dict[str, Slowdown]:
    """The effect of the aggressor's `count` hogs on the victim, for each of the pairs, which take turns."""
    found: dict[str, list[Round]] = {name: [] for name in pairs}
    for _ in range(rounds):
        for name, pair in pairs.items():
            found[name].append(_round(pair, count))
    return {name: Slowdown(tuple(rounds_of)) for name, rounds_of in found.items()}


def _round(pair: TrialPair, count: int) -> Round:
    before_s = working_s(pair.victim)
    with hogs(pair.aggressor, count):
        beside_s = working_s(pair.victim)
    return Round(before_s, beside_s, working_s(pair.victim))


def small(share: Share, memory_bytes: int) -> Share:
    """The share with less RAM, rounded to pages."""
    size = memory_bytes // PAGE_BYTES * PAGE_BYTES
    return msgspec.structs.replace(share, memory_bytes=size, memory_nominal_bytes=size)


def shares_of(allocation: Allocation) -> tuple[Share, ...]:
    """The shares in the order of the tenants."""
    return tuple(allocation.shares.values())

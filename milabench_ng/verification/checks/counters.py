"""Counters that only rise: kernel and driver count since boot, and no launch begins below where another ended."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from milabench_ng.node.conditions import Conditions
from milabench_ng.records.record import Mnb
from milabench_ng.verification.evidence import Evidence

_SLACK = {"cpu_busy_s": 2.0, "cpu_steal_s": 2.0, "energy_mj": 1000.0, "machinery_cpu_s": 1.0}
"""How far a counter may fall: the kernel corrects CPU times a little afterwards (proc_stat(5))."""


def falling_counters(evidence: Evidence) -> Iterator[str]:
    """Launches before which a counter was lower than it had been in the same session; each counter once."""
    highest: dict[tuple[int, str], float] = {}
    told: set[tuple[int, str]] = set()
    read = [(at, name, mnb.session, found) for name, mnb in _launches(evidence) for at, found in _edges(mnb)]
    for _, name, session, found in sorted(read, key=lambda one: one[0]):
        for what, value in found.items():
            before = highest.get((session, what), value)
            if value < before - _SLACK.get(what.rpartition(" ")[2], 0.0) and (session, what) not in told:
                told.add((session, what))
                yield f"{name}: {what} is {value:g}, and was {before:g} in an earlier launch: it only rises"
            highest[session, what] = max(before, value)


def _launches(evidence: Evidence) -> Iterator[tuple[str, Mnb]]:
    for name, record in evidence.named():
        yield name, record.mnb


def _edges(mnb: Mnb) -> Iterator[tuple[float, dict[str, float]]]:
    """When counters were read (monotonic, s), and their values."""
    for edge in mnb.conditions.values():
        yield edge.time_s, dict(_of_conditions(edge))
    for around in () if mnb.surroundings is msgspec.UNSET else mnb.surroundings.values():
        yield around.time_s, {"machinery_cpu_s": around.machinery_cpu_s}


def _of_conditions(edge: Conditions) -> Iterator[tuple[str, float]]:
    host = edge.host
    for name in ("cpu_busy_s", "cpu_steal_s", "pages_swapped_in", "pages_swapped_out", "oom_kills"):
        value = getattr(host, name)
        if value is not None:
            yield name, value
    for uuid, state in edge.gpus.items():
        counted = {"energy_mj": state.energy_mj, "ecc_uncorrected": state.ecc_uncorrected} | state.throttled_ns
        yield from ((f"{uuid} {name}", value) for name, value in counted.items() if value is not None)

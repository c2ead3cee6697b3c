"""What the items of a test took, and what a whole run took: joules within a boundary that is named. Pure.

Power over rate is energy per item: both are means over the same windows. What the processors and the node draw cannot
be divided among tenants, so it counts only where all tenants of a launch group ran the same test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.power import counted_w
from milabench_ng.analysis.summary.summary import Boundary, Energy
from milabench_ng.model.grouping import gathered, grouped
from milabench_ng.model.stats import mean
from milabench_ng.node.conditions import Conditions
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.record import Mnb
from milabench_ng.telemetry.messages import HOST_KEY, telemetry_key

LEAST_S = 10.0
"""Shortest time that a figure rests on, over all launches of a test: a counter moves in steps of 100 ms."""
INTEGRATED = "integrated from a meter of power"
COUNTER = "energy counter"
J_PER_KWH = 3.6e6


class _Drawn(msgspec.Struct, frozen=True):
    """What was drawn in the windows of some launches at once, their rate, and for how long."""

    watts: float
    rate: float
    seconds: float
    """Summed over the launches."""


def energies(good: Sequence[LaunchResult], devices: int) -> tuple[Energy, ...]:
    """By boundary, what the good launches of a test took; ``devices`` work on it at the same time."""
    alone = [drawn for one in good if (drawn := _of_gpus(one)) is not None]
    batches = list(_whole_groups(good))
    found = [
        _energy("GPU", [_Drawn(one.watts * devices, one.rate * devices, one.seconds) for one in alone], _bases(good)),
        _energy("GPU + CPU", [one for one in map(_with_processors, batches) if one], (*_bases(good), COUNTER)),
        _energy("CPU", [one for one in map(_processors, batches) if one], (COUNTER,)),
        _energy("wall", [one for one in map(_wall, batches) if one], (INTEGRATED,)),
    ]
    return tuple(one for one in found if one is not None)


def _energy(boundary: Boundary, drawn: Sequence[_Drawn], bases: Iterable[str]) -> Energy | None:
    """All of them together; no figure of an item if it would rest on less than `LEAST_S`."""
    seconds = sum(one.seconds for one in drawn)
    if not seconds:
        return None
    watts = sum(one.watts * one.seconds for one in drawn) / seconds
    rate = sum(one.rate * one.seconds for one in drawn) / seconds
    return Energy(
        boundary=boundary,
        watts=watts,
        joules_per_item=watts / rate if rate and seconds >= LEAST_S else None,
        seconds=seconds,
        basis=tuple(dict.fromkeys(bases)),
    )


def _bases(good: Iterable[LaunchResult]) -> Iterator[str]:
    yield from (one.power.basis for one in good if one.power is not None)


def _of_gpus(one: LaunchResult) -> _Drawn | None:
    """One device of a launch, as the mean over its devices."""
    length_s = _length_s(one)
    return _Drawn(one.power.watts, one.perf, length_s) if one.power is not None and length_s else None


def _length_s(one: LaunchResult) -> float:
    """Of its window; 0 without one."""
    window = one.mnb.window if one.mnb else None
    return window.end_s - window.start_s if window else 0.0


def _whole_groups(good: Iterable[LaunchResult]) -> Iterator[list[LaunchResult]]:
    """The launch groups of which every tenant is among the good launches of one test."""
    dated = [one for one in good if one.mnb is not None and _length_s(one)]
    for group in grouped(dated, lambda one: (one.run_id, one.mnb.batch if one.mnb else 0)).values():
        planned = {one.mnb.neighbours.planned + 1 for one in group if one.mnb}
        if planned == {len(group)}:
            yield group


def _with_processors(group: Sequence[LaunchResult]) -> _Drawn | None:
    powers = [one.power.watts * len(one.rank_rates) for one in group if one.power is not None]
    return _node(group, "cpu_energy_j", sum(powers)) if len(powers) == len(group) else None


def _processors(group: Sequence[LaunchResult]) -> _Drawn | None:
    """Processors, of a group that used no GPU."""
    on_cpu = all(device.kind == "cpu" for one in group for device in one.hardware)
    return _node(group, "cpu_energy_j", 0.0) if on_cpu else None


def _wall(group: Sequence[LaunchResult]) -> _Drawn | None:
    return _node(group, "wall_energy_j", 0.0)


def _node(group: Sequence[LaunchResult], counter: str, besides_w: float) -> _Drawn | None:
    """What the host's counter shows, and ``besides_w``; all tenants of a group share it."""
    seen = [_host_w(one.mnb, counter) for one in group if one.mnb is not None]
    watts = [one for one in seen if one is not None]
    if not watts or len(watts) < len(group):
        return None
    rate = sum(one.perf * len(one.rank_rates) for one in group)
    return _Drawn(mean(watts) + besides_w, rate, mean([_length_s(one) for one in group]))


def _host_w(mnb: Mnb, counter: str) -> float | None:
    spread = mnb.telemetry.get(telemetry_key("host", HOST_KEY), {}).get(counter)
    return None if mnb.sampled is None else counted_w(spread, mnb.sampled)


def run_kwh(results: Iterable[LaunchResult]) -> dict[str, float]:
    """By boundary, what the node used from before the first launch group of each session until after its last."""
    sessions: dict[tuple[str | None, int], list[Conditions]] = {}
    for one in results:
        if one.mnb is not None:
            sessions.setdefault((one.run_id, one.mnb.session), []).extend(one.mnb.conditions.values())
    found = {name: [_used_j(read, edges) for edges in sessions.values()] for name, read in _COUNTERS.items()}
    return {
        name: sum(known) / J_PER_KWH
        for name, used in found.items()
        if (known := [one for one in used if one is not None]) and len(known) == len(used)
    }


def _used_j(read: Callable[[Conditions], Mapping[str, float | None]], edges: Iterable[Conditions]) -> float | None:
    """What counters rose by from their first reading to their last; None if one is unknown, or began again."""
    in_order = sorted(edges, key=lambda edge: edge.time_s)
    readings = gathered(reading for edge in in_order for reading in read(edge).items())
    rises = [_rise(values) for values in readings.values()]
    known = [rise for rise in rises if rise is not None]
    return sum(known) if known and len(known) == len(rises) else None


def _rise(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or any(late < early for early, late in pairwise(known)):
        return None
    return known[-1] - known[0]


def _gpus_j(edge: Conditions) -> dict[str, float | None]:
    return {uuid: None if gpu.energy_mj is None else gpu.energy_mj / 1000 for uuid, gpu in edge.gpus.items()}


def _known(joules: float | msgspec.UnsetType | None) -> float | None:
    return None if joules is msgspec.UNSET else joules


_COUNTERS: dict[str, Callable[[Conditions], Mapping[str, float | None]]] = {
    "GPU": _gpus_j,
    "CPU": lambda edge: {"CPU": _known(edge.host.cpu_energy_j)},
    "wall": lambda edge: {"wall": _known(edge.host.wall_energy_j)},
}


def idle_w(manifests: Sequence[Manifest]) -> dict[str, float]:
    """By boundary, what the node drew before the first launch group of its first run; empty if that is not known."""
    idle = next((one.idle for one in manifests if one.idle is not msgspec.UNSET), None)
    if idle is None:
        return {}
    drawn = {"GPU": sum(idle.gpus_w.values()) if idle.gpus_w else None, "CPU": idle.cpu_w, "wall": idle.wall_w}
    return {name: watts for name, watts in drawn.items() if watts is not None}

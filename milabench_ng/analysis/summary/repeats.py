"""From launches to repeats: one number for each time that a test ran on all its devices. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.summary import Stat, TestSummary
from milabench_ng.model.grouping import gathered
from milabench_ng.model.stats import mean, sample_std

Runs = Sequence[str | None]
"""The ids of a folder's runs of ``mnb``, in the order in which they started."""


def repeats(
    good: Sequence[LaunchResult], runs: Runs, value: Callable[[LaunchResult], float] = lambda result: result.perf
) -> dict[str, float]:
    """Mean ``value`` over the devices by repeat; ``"0#2"`` is repeat 0 of the second of ``runs``.

    A repeat that lacks a device that other repeats have (its launch failed) is left out: devices differ, so the mean
    over the remaining ones would not be comparable.
    """
    cells: dict[tuple[int, str], dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in good:
        repeat = result.job_id.partition(".")[0]
        cells[runs.index(result.run_id), repeat][result.devices].append(value(result))
    everywhere = {devices for cell in cells.values() for devices in cell}
    return {
        f"{repeat}#{run + 1}" if run else repeat: mean([mean(values) for values in cell.values()])
        for (run, repeat), cell in sorted(cells.items(), key=_in_order)
        if cell.keys() == everywhere
    }


def sessions_by_repeat(good: Sequence[LaunchResult], runs: Runs) -> dict[str, int]:
    """The session of every repeat; empty for one session.

    A repeat that a later session finished counts as the later one's.
    """
    last: dict[str, int] = {}
    for result in good:
        run, repeat = runs.index(result.run_id), result.job_id.partition(".")[0]
        name = f"{repeat}#{run + 1}" if run else repeat
        last[name] = max(last.get(name, 1), result.session)
    return last if len(set(last.values())) > 1 else {}


def runs_of(results: Sequence[LaunchResult]) -> Runs:
    """The runs that the launches of a folder belong to."""
    dated = [(begun, result.run_id) for result in results if (begun := result.started_utc)]
    in_order = [run_id for _, run_id in sorted(dated, key=lambda each: each[0])]
    return list(dict.fromkeys([*in_order, *(result.run_id for result in results)]))


def _in_order(cell: tuple[tuple[int, str], object]) -> tuple[int, int, str]:
    """The sort key: by run, and ``10`` after ``9``."""
    (run, repeat), _ = cell
    return run, len(repeat), repeat


def by_job(good: Sequence[LaunchResult], runs: Runs) -> dict[str, LaunchResult]:
    """Results by job id; ``"0.1#2"`` is that of the second of ``runs``, as in `repeats`.

    The launches of a batch have the same number, also where another run lacks one of them. Copies of a job id within a
    run (records of 2020 do not name theirs) are numbered on.
    """
    last: Counter[str] = Counter()
    named: dict[str, LaunchResult] = {}
    for result in sorted(good, key=lambda result: runs.index(result.run_id)):
        job = result.job_id
        last[job] = max(last[job], runs.index(result.run_id)) + 1
        named[job if last[job] == 1 else f"{job}#{last[job]}"] = result
    return named


def between_devices(row: TestSummary) -> float | None:
    """Sample standard deviation of the devices' means over their mean, in percent; None for one device."""
    return _relative([stat.mean for stat in (row.pergpu or {}).values()])


def run_to_run(row: TestSummary) -> float | None:
    """Sample standard deviation of the repeats' means over their mean, in percent; None for one repeat."""
    if row.repeats:
        return _relative(list(row.repeats.values()))
    known = row.log_perf.std if row.log_perf else None
    return None if known is None else 100 * known


def _relative(values: Sequence[float]) -> float | None:
    centre = mean(values)
    return 100 * sample_std(values) / centre if len(values) > 1 and centre > 0 else None


def device_stats(good: Sequence[LaunchResult]) -> dict[str, Stat] | None:
    """``train`` by device, for launches over one device."""
    alone = (result for result in good if len(result.devices) == 1)
    samples = gathered((result.devices[0], sample) for result in alone for sample in result.samples)
    stats = {device: stat_of(samples[device]) for device in sorted(samples, key=_numerically)}
    return {device: stat for device, stat in stats.items() if stat is not None} or None


def rank_means(good: Sequence[LaunchResult]) -> dict[str, float]:
    """Mean rate of each rank by device, for launches over several devices."""
    several = (result for result in good if len(result.rank_rates) == len(result.devices) > 1)
    rates = gathered(pair for result in several for pair in zip(result.devices, result.rank_rates, strict=True))
    return {device: mean(rates[device]) for device in sorted(rates, key=_numerically)}


def stat_of(values: Sequence[float]) -> Stat | None:
    """The statistics of ``values``; None if there are none."""
    return Stat.of(values) if values else None


def _numerically(device: str) -> tuple[float, str]:
    return (int(device) if device.isdigit() else math.inf, device)

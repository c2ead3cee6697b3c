"""Keeps samples in memory and summarizes them between two points in time."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from milabench_ng.model.bounds import Spread
from milabench_ng.records.record import Gauge, Gauge2020
from milabench_ng.records.series import KeySeries, rounded
from milabench_ng.telemetry.messages import (
    Dropped,
    Sample,
    SamplerReport,
    SourceName,
    Supported,
    is_counter,
    telemetry_key,
)

# 2020's gauge, the value that it shows, and the factor: load was a fraction, memory MiB, temperature degrees Celsius.
_GAUGES_2020: tuple[tuple[Gauge2020, str, float], ...] = (
    ("load", "utilization_pct", 0.01),
    ("memory", "memory_used_mib", 1.0),
    ("temperature", "temperature_c", 1.0),
)
_NO_SAMPLE = -1.0
LOADS = 2400
"""Twenty minutes at 2 Hz."""
FAR_S = 2.0
"""Between samples that are further apart, a counter is not known."""


class Series:
    """The samples of one key, as columns of doubles: at least the last ``room`` of them, at most twice as many."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._times = array("d")
        self._columns: dict[str, array[float]] = {}

    def append(self, time_s: float, values: Mapping[str, float]) -> None:
        """Add a sample, not older than the last one. An absent value is kept as not-a-number."""
        if len(self._times) == 2 * self._room:
            for column in (self._times, *self._columns.values()):
                del column[: self._room]
        for name in values.keys() - self._columns.keys():
            self._columns[name] = array("d", [math.nan]) * len(self._times)
        self._times.append(time_s)
        for name, column in self._columns.items():
            column.append(values.get(name, math.nan))

    def latest(self) -> dict[str, float]:
        """The values of the last sample, by name."""
        return {name: column[-1] for name, column in self._columns.items() if not math.isnan(column[-1])}

    def between(self, start_s: float, end_s: float) -> dict[str, list[tuple[float, float]]]:
        """Times and values of the samples in [start_s, end_s], by name; a name without samples is left out."""
        first, last = bisect_left(self._times, start_s), bisect_right(self._times, end_s)
        times = self._times[first:last]
        found = {
            name: [
                (time_s, value)
                for time_s, value in zip(times, column[first:last], strict=True)
                if not math.isnan(value)
            ]
            for name, column in self._columns.items()
        }
        return {name: samples for name, samples in found.items() if samples}

    def at(self, name: str, time_s: float) -> float | None:
        """A counter at a moment: on the line between the samples around it. None if they are not there, or far away."""
        before, after = bisect_right(self._times, time_s) - 1, bisect_left(self._times, time_s)
        column = self._columns.get(name)
        if column is None or before < 0 or after == len(self._times):
            return None
        low, high, apart_s = column[before], column[after], self._times[after] - self._times[before]
        if apart_s > FAR_S or math.isnan(low + high):
            return None
        return low + (high - low) * (time_s - self._times[before]) / apart_s if apart_s > 0 else low

    def columns(self, start_s: float, end_s: float) -> KeySeries:
        """The samples in [start_s, end_s] as they are kept in a file."""
        first, last = bisect_left(self._times, start_s), bisect_right(self._times, end_s)
        return KeySeries(
            time_s=tuple(round(time_s, 3) for time_s in self._times[first:last]),
            values={name: tuple(map(rounded, column[first:last])) for name, column in self._columns.items()},
        )


class Recorder:
    """The last samples of every key. 57,600 of them are eight hours at 2 Hz and take some 10 to 20 MB per GPU."""

    def __init__(self, samples_per_key: int = 57_600) -> None:
        self._samples_per_key = samples_per_key
        self._series: dict[tuple[SourceName, str], Series] = {}
        self.supported: Supported | None = None
        """The sampler's report of what this node supports."""
        self._dropped: list[Dropped] = []

    def feed(self, report: SamplerReport) -> None:
        """Store a report of the sampler; when a key's room is full, its oldest samples are dropped."""
        if isinstance(report, Sample):
            key = (report.source, report.key)
            series = self._series.get(key) or self._series.setdefault(key, Series(self._samples_per_key))
            series.append(report.time_s, report.values)
        elif isinstance(report, Supported):
            self.supported = report
        elif isinstance(report, Dropped):
            self._dropped.append(report)

    def spreads(self, source: SourceName, key: str, start_s: float, end_s: float) -> dict[str, Spread]:
        """Spread of each value of one key over the samples in [start_s, end_s]; a value without samples is left out.

        For a value that only grows, such as energy, ``max`` minus ``min`` is its increase in ``span_s`` seconds,
        between the edges if it is known there, otherwise from the first sample inside to the last.
        """
        series = self._series.get((source, key))
        if series is None:
            return {}
        found = {name: spread(samples) for name, samples in series.between(start_s, end_s).items()}
        for name in filter(is_counter, found):
            first, last = series.at(name, start_s), series.at(name, end_s)
            if first is not None and last is not None and first <= last:
                found[name] = Spread(found[name].n, first, found[name].mean, last, end_s - start_s)
        return found

    def series(self, keys: Iterable[tuple[SourceName, str]], start_s: float, end_s: float) -> dict[str, KeySeries]:
        """The samples of several keys in [start_s, end_s], named ``source:key``; keys without any are left out."""
        known = ((key, self._series.get(key)) for key in keys)
        found = {telemetry_key(*key): series.columns(start_s, end_s) for key, series in known if series}
        return {name: columns for name, columns in found.items() if columns.time_s}

    def latest(self, source: SourceName, key: str) -> dict[str, float]:
        """The values of the last sample of a key, by name; empty without one."""
        series = self._series.get((source, key))
        return series.latest() if series else {}

    def dropped(self, start_s: float, end_s: float) -> int:
        """Number of samples, of all keys, that were not read in time and lost, in periods that touch the interval.

        Excludes what the sampler could not yet report: it does so with its next sample that is read.
        """
        return sum(lost.count for lost in self._dropped if lost.since_s <= end_s and lost.time_s >= start_s)

    def telemetry(
        self, keys: Iterable[tuple[SourceName, str]], start_s: float, end_s: float
    ) -> dict[str, dict[str, Spread]]:
        """Spreads of several keys, named ``source:key``; a key without samples is present but empty."""
        return {telemetry_key(source, key): self.spreads(source, key, start_s, end_s) for source, key in keys}

    def gpu_monitor(
        self, devices: Mapping[str, str | None], start_s: float, end_s: float
    ) -> dict[str, dict[Gauge2020, Gauge]]:
        """The record's ``gpu_monitor``, as in 2020: by device index, load (0 to 1), memory (MiB) and temperature (C).

        ``devices`` maps the indices, as strings, to UUIDs; None is a device without a GPU. -1 means no sample.
        """
        return {index: self._gauges(uuid, start_s, end_s) for index, uuid in devices.items()}

    def gpu_load(self, uuids: Iterable[str], start_s: float, end_s: float) -> dict[str, list[tuple[float, float]]]:
        """Time and utilisation (0 to 1) of samples in [start_s, end_s], by UUID; without those that have none.

        At most `LOADS` of them, evenly chosen: a record is read as a whole.
        """
        series = {uuid: self._series.get(("gpu", uuid)) for uuid in uuids}
        taken = {uuid: own.between(start_s, end_s).get("utilization_pct", []) for uuid, own in series.items() if own}
        return {
            uuid: [(time_s, percent / 100) for time_s, percent in own[:: math.ceil(len(own) / LOADS)]]
            for uuid, own in taken.items()
            if own
        }

    def _gauges(self, uuid: str | None, start_s: float, end_s: float) -> dict[Gauge2020, Gauge]:
        found = {} if uuid is None else self.spreads("gpu", uuid, start_s, end_s)
        return {
            gauge: Gauge(one.min * factor, one.mean * factor, one.max * factor)
            if (one := found.get(value)) is not None
            else Gauge(_NO_SAMPLE, _NO_SAMPLE, _NO_SAMPLE)
            for gauge, value, factor in _GAUGES_2020
        }


def spread(samples: list[tuple[float, float]]) -> Spread:
    """Count, min, mean, max and span of ``samples``, at least one pair of time and value."""
    values = [value for _, value in samples]
    return Spread(
        n=len(values),
        min=min(values),
        mean=sum(values) / len(values),
        max=max(values),
        span_s=samples[-1][0] - samples[0][0],
    )

"""What the sampler saw over a whole run: power, temperature, clocks, load, memory. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from milabench_ng.present.html.figures import Axis, Box, Chart, Curve, Part, View, line_key, numbers, plot, style
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.series import BatchSeries

BINS = 400
"""The most points of a line."""
_MOST_BANDS = 200
_MINUTE = 60.0


class Quantity(NamedTuple):
    """One value of one source."""

    source: str
    value: str
    title: str


QUANTITIES = (
    Quantity("gpu", "power_w", "power (W)"),
    Quantity("gpu", "temperature_c", "temperature (°C)"),
    Quantity("gpu", "sm_clock_mhz", "SM clock (MHz)"),
    Quantity("gpu", "utilization_pct", "GPU utilization (%)"),
    Quantity("gpu", "memory_used_mib", "GPU memory (MiB)"),
    Quantity("host", "cpu_busy_pct", "CPU load of the node (%)"),
    Quantity("host", "memory_available_mib", "available RAM of the node (MiB)"),
    Quantity("tenant", "current_mib", "RAM of the tenant (MiB)"),
)


class Placed(NamedTuple):
    """A batch on the axis, in minutes."""

    series: BatchSeries
    begin: float
    end: float

    def minutes(self, time_s: float) -> float:
        """Where a moment of it is."""
        return self.begin + (time_s - self.series.requested_s) / _MINUTE


def conditions_charts(series: Sequence[BatchSeries], manifests: Sequence[Manifest]) -> Iterator[Chart]:
    """The chart, if any telemetry was kept."""
    placed = tuple(in_turn(series))
    names = _names(manifests)
    views = [view for quantity in QUANTITIES if (view := _view(quantity, placed, names))]
    if views:
        yield Chart(
            key="conditions",
            wide=True,
            title="conditions over the run",
            reading="What was read twice a second while launch groups ran, averaged where points would lie too close. "
            "Shaded and white: one launch group after the other; pauses between sessions are cut.",
            chooses="quantity",
            views=tuple(views),
        )


def in_turn(series: Sequence[BatchSeries]) -> Iterator[Placed]:
    """The batches in the order in which they ran, sessions one after the other."""
    ordered = sorted((one for one in series if one.telemetry), key=lambda one: (one.session, one.requested_s))
    end, session, zero_s = 0.0, None, 0.0
    for one in ordered:
        if one.session != session:
            session, zero_s = one.session, one.requested_s - end * _MINUTE
        last_s = max(column.time_s[-1] for column in one.telemetry.values())
        begin, end = (one.requested_s - zero_s) / _MINUTE, (last_s - zero_s) / _MINUTE
        yield Placed(one, begin, end)


def _names(manifests: Sequence[Manifest]) -> dict[str, str]:
    """What keys are called."""
    devices = (device for manifest in manifests for device in manifest.plan.devices)
    found = {f"gpu:{device.uuid}": f"GPU {device.index}" for device in devices if device.uuid}
    return {"host:node": "node", **found}


def _view(quantity: Quantity, placed: Sequence[Placed], names: Mapping[str, str]) -> View | None:
    lines = _lines(quantity, placed)
    if not lines:
        return None
    values = numbers([value for line in lines.values() for _, value in line], quantity.title)
    told = {key: names.get(key, key.replace(":", " ", 1)) for key in lines}
    curves = (
        Curve(points=tuple(line), look=style(index), title=told[key]) for index, (key, line) in enumerate(lines.items())
    )
    minutes = numbers([0.0, placed[-1].end], "minutes of work", from_zero=True)
    keys = (line_key(told[key], style(index)) for index, key in enumerate(lines))
    return plot(minutes, values, (*_bands(placed, values), *curves), keys=keys, name=quantity.title)


def _lines(quantity: Quantity, placed: Sequence[Placed]) -> dict[str, list[tuple[float, float]]]:
    """By key, the mean of each bin that has samples."""
    width = max(placed[-1].end if placed else 0.0, 1e-9) / BINS
    bins: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in placed:
        for key, series in one.series.telemetry.items():
            column = series.values.get(quantity.value) if key.startswith(f"{quantity.source}:") else None
            for time_s, value in zip(series.time_s, column or (None,) * len(series.time_s), strict=True):
                if value is not None:
                    bins[key][math.floor(one.minutes(time_s) / width)].append(value)
    return {
        key: [((place + 0.5) * width, sum(values) / len(values)) for place, values in sorted(found.items())]
        for key, found in sorted(bins.items())
    }


def _bands(placed: Sequence[Placed], values: Axis) -> Iterator[Part]:
    for number, one in enumerate(placed if len(placed) <= _MOST_BANDS else ()):
        yield Box(
            begin=(one.begin, values.low),
            end=(one.end, values.high),
            opacity=0.12 if number % 2 == 0 else 0.0,
            title=", ".join(one.series.labels),
        )

"""A run as Prometheus text, for the textfile collector of node_exporter: base units, ratios of 1, totals.

The file is replaced as a whole, so that a scrape never sees half of it. Names and units follow
https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from milabench_ng.model.plain import plain
from milabench_ng.model.units import MIB
from milabench_ng.records.output_files import write_output
from milabench_ng.run.display.run_view import RunView, TenantView, seen
from milabench_ng.run.events.run_events import (
    BatchBegins,
    BatchProgress,
    Gauges,
    LaunchEnds,
    LaunchState,
    RunBegins,
    RunEnds,
    RunEvent,
    Slices,
    Stamped,
)

WRITTEN_S = 5.0
"""The least time between two writings."""


class Gauge(NamedTuple):
    """A value of a device that its sensor tells."""

    name: str
    help: str
    read: Callable[[Gauges], float | None]


class Total(NamedTuple):
    """What a tenant's slices add up to."""

    name: str
    help: str
    read: Callable[[Slices], float]


DEVICE_GAUGES = (
    Gauge("mnb_device_utilization_ratio", "Time that the GPU was busy.", lambda one: _part(one.utilization_pct, 0.01)),
    Gauge("mnb_device_power_watts", "Power that the GPU draws.", lambda one: one.power_w),
    Gauge("mnb_device_temperature_celsius", "Temperature of the GPU.", lambda one: one.temperature_c),
    Gauge("mnb_device_memory_used_bytes", "Memory in use on the GPU.", lambda one: _part(one.memory_used_mib, MIB)),
)
TENANT_TOTALS = (
    Total("mnb_tenant_items", "Items that the tenant processed, in its unit.", lambda one: one.count),
    Total("mnb_tenant_work_seconds", "Time that the tenant worked.", lambda one: one.length_s),
    Total("mnb_tenant_wait_seconds", "Time of its work that the tenant waited for data.", lambda one: one.wait_s),
)


class PrometheusText(Collector):
    """Keeps a file up to date."""

    name = "the Prometheus file"
    wants: tuple[type[RunEvent], ...] = (
        RunBegins,
        BatchBegins,
        LaunchState,
        Slices,
        BatchProgress,
        LaunchEnds,
        RunEnds,
    )

    def __init__(self, path: Path, view: RunView) -> None:
        """``view``: what is known of the run already. Raises InputError if the file cannot be written."""
        self._path = path
        self._view = view
        self._totals: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
        self._ended = False
        """Whether the session has, or nobody looks any more."""
        self._written_s = -math.inf
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._write()

    def receive(self, stamped: Stamped) -> None:
        """Add an event, and write the file if it is old."""
        event = stamped.event
        self._view = seen(self._view, event, stamped.time_s)
        self._ended = isinstance(event, RunEnds)
        if isinstance(event, Slices):
            self._add(event)
        if stamped.time_s - self._written_s >= WRITTEN_S:
            self._written_s = stamped.time_s
            self._write()

    def _add(self, event: Slices) -> None:
        for tenant in self._view.tenants:
            if tenant.placed.job_id == event.job_id:
                for total in TENANT_TOTALS:
                    self._totals[total.name, _labels(tenant)] += total.read(event)

    def close(self) -> None:
        """Leave a file that tells no more of a run that may go on: nobody would keep it up to date."""
        self._ended = True
        self._write()

    def _write(self) -> None:
        write_output(self._path, generate_latest(self._registry), "--prometheus", force=True)

    def collect(self) -> Iterable[Metric]:
        """All that the file holds now; called by the library."""
        yield from self._of_the_run()
        for total in TENANT_TOTALS:
            counter = CounterMetricFamily(total.name, total.help, labels=("device", "test", "unit"))
            for (name, labels), value in self._totals.items():
                if name == total.name:
                    counter.add_metric(labels, value)
            yield counter
        for gauge in DEVICE_GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=("device", "boundary"))
            for device, told in () if self._ended else _devices(self._view):
                if (shown := gauge.read(told)) is not None:
                    family.add_metric((device, "gpu"), shown)
            yield family

    def _of_the_run(self) -> Iterator[Metric]:
        view, begins = self._view, self._view.begins
        info = GaugeMetricFamily("mnb_run_info", "The run, always 1.", labels=("run_id", "suite", "version"))
        if begins is not None:
            info.add_metric((begins.run_id, plain(begins.suite), begins.version), 1)
        yield info
        planned = begins.batches if begins else 0
        for name, text, value in (
            ("mnb_run_in_progress", "1 while the session runs and is watched.", int(not self._ended)),
            ("mnb_run_launch_groups", "Launch groups of the plan.", planned),
            ("mnb_run_launch_groups_done", "Launch groups that have ended.", view.batches_done),
            ("mnb_run_launches_failed", "Launches whose last attempt failed.", len(view.failed)),
            ("mnb_run_launches_with_warnings", "Launches with warnings.", len(view.marked)),
        ):
            yield GaugeMetricFamily(name, text, value=value)


def _part(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _labels(tenant: TenantView) -> tuple[str, ...]:
    """Device, test and unit."""
    placed = tenant.placed
    return " ".join(placed.devices or placed.slots), plain(placed.label), plain(placed.unit)


def _devices(view: RunView) -> Iterator[tuple[str, Gauges]]:
    """Every GPU once, whatever the number of its tenants."""
    found = {
        device: told
        for tenant in view.tenants
        for device, told in zip(tenant.placed.devices or tenant.placed.slots, tenant.gauges, strict=False)
    }
    yield from found.items()

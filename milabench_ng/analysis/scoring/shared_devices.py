"""What several tenants of one device get out of it, beside one that has it alone. Pure.

The runs of 1, 2, 4 ... tenants on each device are folders of their own, and the ratio of two of them counts nowhere
else: their tenants had different parts of the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from milabench_ng.analysis.summary.summary import Latency, Summary, TestSummary


class SharedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A test with K tenants on each device. Rates are in items per second."""

    test: str
    unit: str
    tenants: int
    """On each device."""
    how: str
    """How they share it, in words; empty for one tenant."""
    node_total: float
    gain: float | None
    """The node's total over that with the fewest tenants; None where the options, the data or the precision differ."""
    each: float
    """The mean over the tenants."""
    worst: float
    """The tenant that is slowest on average."""
    latency: Latency | None


def shared_devices(summaries: Sequence[Summary]) -> tuple[SharedDevice, ...]:
    """By test, the runs of one suite with different numbers of tenants on each device; empty without two of them.

    Of several runs with the same number, the first counts.
    """
    first = summaries[0]
    alike = [one for one in summaries if (one.suite, len(one.models)) == (first.suite, len(first.models))]
    return tuple(
        line for test in first.tests for line in _lines(test, [one.tests[test] for one in alike if test in one.tests])
    )


def _lines(test: str, rows: Sequence[TestSummary]) -> list[SharedDevice]:
    runs: dict[int, TestSummary] = {}
    for row in rows:
        if row.train is not None and row.pergpu:
            runs.setdefault(tenants(row), row)
    least = runs[min(runs)] if len(runs) > 1 else None
    return [] if least is None else [_line(test, runs[count], least) for count in sorted(runs)]


def tenants(row: TestSummary) -> int:
    return 1 if row.sharing is None else round(row.sharing.value or 1)


def _line(test: str, row: TestSummary, least: TestSummary) -> SharedDevice:
    each = _mean(row)
    return SharedDevice(
        test=test,
        unit=row.work.unit,
        tenants=tenants(row),
        how=row.sharing.what if row.sharing else "",
        node_total=each * row.devices,
        gain=each * row.devices / (_mean(least) * least.devices) if row.work == least.work and _mean(least) else None,
        each=each,
        worst=min(stat.mean for stat in (row.pergpu or {}).values()),
        latency=row.latency,
    )


def _mean(row: TestSummary) -> float:
    return row.train.mean if row.train else 0.0

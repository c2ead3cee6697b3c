"""Messages between orchestrator and sampler: typed, newline-delimited JSON over the sampler's stdin and stdout.

The sampler receives orders and sends reports. Times are seconds of CLOCK_MONOTONIC, which all processes of a node
share. The name of a value ends in its unit, if it has one; what cannot be read is absent.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SourceName = Literal["gpu", "tenant", "host"]

HOST_KEY = "node"
"""The only key of the source ``host``."""


def telemetry_key(source: SourceName, key: str) -> str:
    """The name of a source's key in a record's ``telemetry``: ``gpu:GPU-2f2c...``."""
    return f"{source}:{key}"


def is_counter(quantity: str) -> bool:
    """Whether it is a counter (joules, seconds) since the driver loaded or the group was created; others are levels."""
    return quantity.endswith(("_j", "_s")) and not quantity.endswith("_per_s")


class Watch(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="order"):
    """Sample a tenant's cgroup from now on, under ``key``. Files of cgroup v1 and v2 are told apart by their content.

    An order for a watched key replaces the earlier one. A file that is not given or does not exist is left out.
    """

    key: str
    memory_stat: str | None = None
    """Path of ``memory.stat``."""
    memory_current: str | None = None
    """Path of ``memory.current`` (v2) or ``memory.usage_in_bytes`` (v1)."""
    cpu_usage: str | None = None
    """Path of ``cpu.stat`` (v2) or ``cpuacct.usage`` (v1)."""


class SamplerReport(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="report"):
    """Base of the sampler's reports."""

    time_s: float


class Supported(SamplerReport, frozen=True, kw_only=True):
    """What this node supports: the first report, sent once."""

    interval_s: float
    keys: dict[SourceName, tuple[str, ...]]
    values: dict[SourceName, tuple[str, ...]]
    unsupported: dict[SourceName, tuple[str, ...]]
    """Values that some key of the source does not support."""
    notes: tuple[str, ...] = ()
    """Why a source gives nothing."""


class Sample(SamplerReport, frozen=True, kw_only=True):
    """What one source read for one key."""

    source: SourceName
    key: str
    values: dict[str, float]


class Dropped(SamplerReport, frozen=True, kw_only=True):
    """Samples were dropped from ``since_s`` on because they were not read in time."""

    since_s: float
    """Time of the first one lost since the last such report."""
    count: int
    """Number lost since then, over all keys."""


AnyReport = Supported | Sample | Dropped


def encode(message: Watch | SamplerReport) -> bytes:
    """The message as one line, including its end."""
    return msgspec.json.encode(message) + b"\n"

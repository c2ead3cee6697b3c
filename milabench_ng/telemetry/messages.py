"""What orchestrator and sampler tell each other: typed, newline-delimited JSON over the sampler's stdin and stdout.

Orders go down, reports come up. Times are seconds of CLOCK_MONOTONIC, which all processes of a node share. The name of
a value ends in its unit, if it has one; what cannot be read is absent.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SourceName = Literal["gpu", "tenant", "host"]

HOST_KEY = "node"
"""The only key of the source ``host``."""


def telemetry_key(source: SourceName, key: str) -> str:
    """The name in a record's ``telemetry`` of what a source says of one of its keys: ``gpu:GPU-2f2c...``."""
    return f"{source}:{key}"


class Watch(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="order"):
    """Sample a tenant's cgroup from now on, under ``key``. Files of cgroup v1 and v2 are told apart by their content.

    An order for a key that is watched already replaces it. A file that is not given, or not there, is left out.
    """

    key: str
    memory_stat: str | None = None
    """Path of ``memory.stat``."""
    memory_current: str | None = None
    """Path of ``memory.current`` (v2) or ``memory.usage_in_bytes`` (v1)."""
    cpu_usage: str | None = None
    """Path of ``cpu.stat`` (v2) or ``cpuacct.usage`` (v1)."""


class SamplerReport(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="report"):
    """Base of what the sampler says."""

    time_s: float


class Supported(SamplerReport, frozen=True, kw_only=True):
    """What this node gives: the first report, once."""

    interval_s: float
    keys: dict[SourceName, tuple[str, ...]]
    values: dict[SourceName, tuple[str, ...]]
    unsupported: dict[SourceName, tuple[str, ...]]
    """Values that some key of the source does not give."""
    notes: tuple[str, ...] = ()
    """Why a source gives nothing."""


class Sample(SamplerReport, frozen=True, kw_only=True):
    """What one source read of one key."""

    source: SourceName
    key: str
    values: dict[str, float]


class Dropped(SamplerReport, frozen=True, kw_only=True):
    """Samples were thrown away because nobody read them in time, from ``since_s`` on."""

    since_s: float
    """The moment of the first that was lost since this was said last."""
    count: int
    """How many since then, of all keys together."""


AnyReport = Supported | Sample | Dropped


def encode(message: Watch | SamplerReport) -> bytes:
    """One line, its end included."""
    return msgspec.json.encode(message) + b"\n"

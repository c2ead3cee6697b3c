"""The record of one launch of the 2020 ``milarun``, as far as a report needs it: it has no ``mnb`` part."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from milabench_ng.model.bounds import LARGEST, Moment


class Extent(msgspec.Struct, frozen=True):
    """One counter of ``gpu_monitor``: the largest sample, -1 if there was none."""

    max: Annotated[float, msgspec.Meta(ge=-1, le=LARGEST)] | None = None


class Monitor2020(msgspec.Struct, frozen=True):
    """One device in ``gpu_monitor``. Memory in MiB."""

    memory: Extent | None = None


class Timing2020(msgspec.Struct, frozen=True):
    """Seconds, and items per second of each slice (null if not a number)."""

    time: Moment | None = None
    rates: list[float | None] | None = None


class Record2020(msgspec.Struct, frozen=True, kw_only=True):
    """One launch."""

    name: str
    job_id: str
    success: bool
    error: str | None = None
    hostname: str | None = None
    device_count: int = 1
    job: dict[str, Any] | None = None
    environ: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    timings: dict[str, Timing2020] = {}
    gpu_monitor: dict[str, Monitor2020] | None = None

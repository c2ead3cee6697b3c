"""``series/b3.20260106-160000-123456.json.gz``: what the sampler read while a batch ran, sample by sample, in columns.

Records hold the spread of each value over their window; this is what it is the spread of. Nothing that is scored rests
on it.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, convert_json, parse_json, read_bytes
from milabench_ng.model.plain import short, whole_json
from milabench_ng.model.units import utc_stamp
from milabench_ng.records.names import SERIES, SERIES_NAME

SERIES_SCHEMA = 1
LONGEST_S = 1e9
"""No node has been up for thirty years."""
MOST_SAMPLES = 30_000_000
"""Numbers that a report keeps at once: a week of eight GPUs, and a gigabyte."""


class KeySeries(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one device, tenant or host."""

    time_s: tuple[float, ...]
    """On CLOCK_MONOTONIC, like the slices in records; increasing."""
    values: dict[str, tuple[float | None, ...]]
    """By name, which ends in the unit: one value for each time, None where there was none."""


class BatchSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The telemetry of one batch, from before its workers start until they have ended."""

    schema: int = SERIES_SCHEMA
    run_id: str
    session: int
    batch: int
    labels: tuple[str, ...]
    """The tests that ran in it."""
    requested_s: float
    """When it was begun (monotonic)."""
    start_s: float | None
    """The common start; None if there was none."""
    stop_s: float | None
    telemetry: dict[str, KeySeries]
    """By source and key, as in records: ``gpu:GPU-2f2c...``."""


def series_name(batch: int, started: datetime) -> str:
    """The file of a batch."""
    return f"{SERIES}/b{batch}.{utc_stamp(started)}.json.gz"


def encode_series(series: BatchSeries) -> bytes:
    """Compressed JSON; the same bytes for the same series."""
    return gzip.compress(whole_json(series), 6, mtime=0)


def decode_series(content: bytes, source: str) -> BatchSeries:
    """Decode what nobody vouches for. Raises InputError for anything that is not a series."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            raw = file.read(LARGE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{short(source)}: not a series: {error}") from None
    if len(raw) > LARGE:
        raise InputError(f"{short(source)}: not a series: it holds more than {LARGE >> 20} MiB")
    made = convert_json(parse_json(raw, source), BatchSeries, source)
    if not abs(made.requested_s) < LONGEST_S:
        raise InputError(f"{short(source)}: it was requested at {made.requested_s:g} s")
    for key, series in made.telemetry.items():
        if any(len(column) != len(series.time_s) for column in series.values.values()):
            raise InputError(f"{short(source)}: {short(key)}: a column is not as long as the times")
        times = (made.requested_s - 0.001, *series.time_s)  # which are rounded
        if not series.time_s or any(late < early for early, late in pairwise(times)) or times[-1] > LONGEST_S:
            raise InputError(f"{short(source)}: {short(key)}: the times are not those of a launch group")
    return made


def kept_series(folder: Path, names: Iterable[str]) -> Iterator[BatchSeries]:
    """Those among the files ``names`` of a result folder, as far as they take a gigabyte at most in memory.

    What is none is left out: nothing that is scored rests on it.
    """
    room = MOST_SAMPLES
    for name in names:
        if SERIES_NAME.fullmatch(name):
            with suppress(InputError):
                made = decode_series(read_bytes(folder / name, LARGE, os.O_NOFOLLOW), name)
                room -= sum(len(one.time_s) * (1 + len(one.values)) for one in made.telemetry.values())
                if room < 0:
                    return
                yield made


def rounded(value: float) -> float | None:
    """As a column holds it: six digits; None where nothing was read."""
    return None if math.isnan(value) else float(f"{value:.6g}")

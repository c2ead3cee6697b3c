"""How busy a GPU was in the course of an epoch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.window import SliceRow

STEPS = 100
"""Of an epoch: its course has a value at each per cent, both ends included."""


class LoadCourse(msgspec.Struct, frozen=True, kw_only=True):
    """The utilisation of one launch's GPU, 0 to 1, at equal steps of an epoch; shorter if the launch was."""

    label: str
    job_id: str
    loads: tuple[float, ...]


def load_courses(read: ReadRecord, epoch: int) -> Iterator[LoadCourse]:
    """The first epoch of ``epoch`` items of a launch over one device, from the common start on.

    Nothing for a launch that failed, or whose utilisation is not recorded.
    """
    mnb = read.record.mnb
    seen = {} if mnb.gpu_load is msgspec.UNSET else mnb.gpu_load
    if mnb.start_s is None or not read.record.success or len(seen) != 1 or len(mnb.ranks) != 1:
        return
    (samples,) = seen.values()
    loads = course(samples, mnb.ranks[0].slices, mnb.start_s, epoch)
    if loads:
        yield LoadCourse(label=mnb.label, job_id=read.record.job_id, loads=loads)


def course(
    samples: Sequence[tuple[float, float]], rows: Sequence[SliceRow], start_s: float, epoch: int
) -> tuple[float, ...]:
    """The values of ``samples`` (times, values) at each step of an epoch, between samples in proportion.

    When a step is reached follows from the items of the slices, at an even pace within each.
    """
    times = [start_s, *(row.end_s for row in rows)]
    items = np.cumsum([0, *(row.count for row in rows)])
    wanted = np.arange(STEPS + 1) * epoch / STEPS
    reached = np.interp(wanted[wanted <= items[-1]], items, times)
    seen = [(time_s, value) for time_s, value in samples if np.isfinite(value)]
    if len(rows) == 0 or len(seen) < 2:
        return ()
    sampled, values = np.array(seen).T
    return tuple(np.interp(reached, sampled, values).round(4).tolist())

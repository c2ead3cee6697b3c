"""The meter under a clock that the tests set: all numbers are computed by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from recording import Recording

from milabench_ng.bench.meter import Meter
from milabench_ng.model.events import Full, Slice
from milabench_ng.records.latency import MOST, batches
from milabench_ng.records.window import (
    MIN_STEPS,
    SliceRow,
    WindowRule,
    averaging_window,
    first_full,
    settled_since,
)

BEGIN = 100.0
RULE = WindowRule()


class Bed:
    """A meter, its clock, and what it said and did, in order."""

    def __init__(self, max_count: int = 0, sync_s: float = 0.0) -> None:
        self.now = BEGIN
        self.sync_s = sync_s
        self.channel = Recording()
        self.meter = Meter(
            self.channel,
            rank=2,
            clock=lambda: self.now,
            synchronize=self.synchronize,
            on_slice=lambda: self.channel.log.append("on slice"),
            sample_duration=0.5,
            max_count=max_count,
            rule=RULE,
        )
        self.meter.start()

    def synchronize(self) -> None:
        self.now += self.sync_s
        self.channel.log.append("synchronize")

    def step(self, seconds: float, count: int = 1, wait_s: float = 0.0) -> None:
        self.now += seconds
        self.meter.step(count, wait_s)

    def slices(self) -> list[tuple[Any, ...]]:
        return [(s.start_s, s.length_s, s.count, s.steps, s.wait_s) for s in self.channel.all(Slice)]


def test_a_slice_ends_with_the_first_step_after_the_sample_duration_and_holds_the_synchronisation() -> None:
    bed = Bed(sync_s=0.125)
    for count, wait_s in ((10, 0.0625), (10, 0.0), (10, 0.125), (7, 0.25)):
        bed.step(0.25, count, wait_s)
    assert bed.slices() == [(100.0, 0.625, 20, 2, 0.0625), (100.625, 0.625, 17, 2, 0.375)]
    assert {event.rank for event in bed.channel.all(Slice)} == {2}


def test_latencies_are_those_of_the_slice_and_training_has_none() -> None:
    """1 ms is in bucket 348, since 1.02 ** 348 = 983 and 1.02 ** 349 = 1003 (in us)."""
    bed = Bed()
    for latencies in ((0.001, 0.001), (), (0.001,)):
        for seconds in latencies:
            bed.meter.note_latency(seconds)
        bed.step(0.5)
    assert [event.latency for event in bed.channel.all(Slice)] == [((348, 2),), (), ((348, 1),)]


def test_latencies_of_items_are_those_of_the_slice_and_share_its_buckets() -> None:
    """Two histograms of items and that of batches have a third of the buckets each."""
    bed, many = Bed(), Counter(1e-3 * 1.03**power for power in range(200))
    taken = iter(({"TTFT": Counter({0.001: 3})}, {}, {"TTFT": many, "TPOT": Counter([0.001])}))
    bed.meter.take_latencies = lambda: next(taken)
    for _ in range(3):
        bed.step(0.5)
    first, second, third = (event.item_latency for event in bed.channel.all(Slice))
    assert (first, second) == ({"TTFT": ((348, 3),)}, {})
    assert third["TPOT"] == ((348, 1),)
    assert len(third["TTFT"]) <= MOST // 3
    assert batches(third["TTFT"]) == 200


def test_a_long_iteration_makes_one_long_slice() -> None:
    bed = Bed()
    bed.step(0.25, 8)
    bed.step(2.25, 8)
    bed.step(0.5, 8)
    assert bed.slices() == [(100.0, 2.5, 16, 2, 0.0), (102.5, 0.5, 8, 1, 0.0)]


def test_the_device_is_synchronised_once_a_slice_and_then_read() -> None:
    bed = Bed()
    for _ in range(3):
        bed.step(0.125)
    assert bed.channel.log == []
    bed.step(0.125)
    assert [entry if not isinstance(entry, Slice) else "slice" for entry in bed.channel.log] == [
        "synchronize",
        "slice",
        "on slice",
        ("poll", 4),
    ]


def test_what_is_read_between_slices_belongs_to_the_next() -> None:
    """Nothing falls between two slices, not even what is done there."""
    bed = Bed()
    bed.meter.on_slice = lambda: setattr(bed, "now", bed.now + 0.25)
    bed.step(0.5)
    bed.step(0.25)
    assert bed.slices() == [(100.0, 0.5, 1, 1, 0.0), (100.5, 0.5, 1, 1, 0.0)]


def test_an_open_slice_counts_but_is_not_told() -> None:
    bed = Bed()
    bed.step(0.5, 3)
    bed.step(0.25, 4)
    assert len(bed.slices()) == 1
    assert (bed.meter.count, bed.meter.steps) == (7, 2)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(0.001, 3.0), min_size=1, max_size=60))
def test_slices_are_contiguous_and_lose_nothing(durations: list[float]) -> None:
    bed = Bed(sync_s=0.01)
    for seconds in durations:
        bed.step(seconds, 5)
    edge = BEGIN
    for start_s, length_s, count, steps, _ in bed.slices():
        assert start_s == edge or abs(start_s - edge) < 1e-9
        assert length_s >= 0.5
        assert count == 5 * steps
        edge = start_s + length_s
    closed = sum(row[3] for row in bed.slices())
    assert sum(durations[closed:]) < 0.5 + 1e-9
    assert bed.meter.count == 5 * len(durations)


def full_after(seconds: float, **bed: Any) -> tuple[float, int] | None:
    """When ``full`` is said with steps of ``seconds``, since the start, and the count in it."""
    made = Bed(**bed)
    for _ in range(200):
        made.step(seconds)
    told = made.channel.all(Full)
    assert len(told) <= 1
    return (told[0].time_s - BEGIN, told[0].count) if told else None


def test_full_when_settled_and_windowed_and_past_the_margin() -> None:
    assert full_after(0.5) == (12.0, 24)  # 2 + 9 + 1


def test_full_waits_for_the_count() -> None:
    assert full_after(0.5, max_count=30) == (15.0, 30)
    assert full_after(0.5, max_count=24) == (12.0, 24)
    assert full_after(0.5, max_count=201) is None


def test_a_long_slice_at_the_start_is_warm_up() -> None:
    bed = Bed()
    bed.step(5.25)  # over the 2 s of settling: they begin again after it
    while not bed.channel.all(Full):
        bed.step(0.5)
    assert bed.now == BEGIN + 5.25 + 12.0  # 2 + 9 + 1


def test_only_the_first_slice_begins_settling_again() -> None:
    bed = Bed()
    bed.step(1.5)
    bed.step(3.0)  # began while the launch settled: the window begins after it, at 4.5
    while not bed.channel.all(Full):
        bed.step(0.5)
    assert bed.now == BEGIN + 4.5 + 10.0  # 9 + 1


def test_full_waits_for_ten_steps_between_settling_and_margin() -> None:
    # Slices begin at 0, 1.5, 3.0 ...: that of 3.0 is the first after settling, the tenth from there ends at 18.0, and
    # the first moment that is a margin later is 19.5.
    assert full_after(1.5) == (19.5, 13)


def test_steps_in_the_margin_do_not_fill_the_window() -> None:
    bed = Bed()
    for seconds in (2.0, 4.0, 6.0, *[0.0625] * 16):
        bed.step(seconds)
    assert bed.now == 113.0
    assert bed.channel.all(Full) == []
    for _ in range(16):
        bed.step(0.0625)
    assert bed.channel.one(Full).time_s == 113.5  # 2 long steps, and the 8 that ended by 112.5


@settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(0.01, 4.0), min_size=100, max_size=100), st.integers(0, 60), st.floats(0.0, 5.0))
def test_a_stop_at_full_leaves_a_window_that_begins_after_settling(
    durations: list[float], max_count: int, late_s: float
) -> None:
    """What the worker promises is what the record's own rule finds."""
    bed = Bed(max_count=max_count)
    for seconds in durations:
        bed.step(seconds)
        if bed.channel.all(Full):
            break
    else:
        return
    rows = [SliceRow(*row) for row in bed.slices()]
    window = averaging_window([rows], bed.now, RULE)
    assert window is not None
    assert first_full(rows, BEGIN - late_s, RULE, max_count) == bed.now
    assert window.start_s >= settled_since(rows, BEGIN - late_s, RULE) - 1e-9
    warm_up = max((row.end_s for row in rows if row.start_s < BEGIN + RULE.settle_s), default=BEGIN)
    assert window.start_s >= max(warm_up, BEGIN + RULE.settle_s) - 1e-9
    assert sum(row.steps for row in rows if window.holds(row)) >= MIN_STEPS
    assert bed.meter.count >= max_count


def test_the_backlog_of_a_slice_is_the_mean_over_its_steps() -> None:
    bed = Bed()
    for backlog in (7, 4, 5, None):
        bed.now += 0.25
        bed.meter.step(1, 0.0, backlog)
    bed.step(0.5)
    assert [event.backlog for event in bed.channel.all(Slice)] == [6, 5, None]  # of 5.5 and 5


def full_with(backlog: Callable[[int], int]) -> float | None:
    """When ``full`` is said, since the start, with ten items in every slice of 0.5 s."""
    bed = Bed()
    for step in range(200):
        bed.now += 0.5
        bed.meter.step(10, 0.0, backlog(step))
        if bed.channel.all(Full):
            return bed.now - BEGIN
    return None


def test_full_waits_until_what_was_made_ahead_is_worked_off() -> None:
    # 18 slices of 10 items are in a window: 0.9 of them may have been made before it.
    assert full_with(lambda _: 100) == 12.0
    assert full_with(lambda step: 10 * step) == 12.0  # it grows: the device sets the pace
    # Slice 40, which begins at 20 s, is the first without any: of slice 39, with one, 0.9 may have been made before.
    assert full_with(lambda step: max(0, 40 - step)) == 30.0
    assert full_with(lambda step: 1000 - step) is None

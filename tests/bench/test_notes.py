"""What a workload notes of its steps: sums in each slice, means in the window."""

from __future__ import annotations

from functools import partial
from itertools import repeat

import msgspec
import pytest
import torch
from recording import Recording, bench_on

from milabench_ng.bench.notes import Notes
from milabench_ng.model.events import Slice
from milabench_ng.records.window import SliceRow, Window, notes_per_step


def test_each_slice_has_the_sums_of_its_steps_without_those_of_warming_up() -> None:
    channel = Recording(last=3)
    bench = bench_on(channel)
    bench.notes.add("cached", 0.5)
    for step, _ in enumerate(bench.measure(repeat([torch.zeros(1)]))):
        bench.notes.add("cached", float(step))
        bench.notes.add("cached", 1.0)
    assert [event.notes for event in channel.all(Slice)] == [{"cached": 1.0}, {"cached": 2.0}, {"cached": 3.0}]


def test_a_time_is_that_of_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((1.0, 1.25, 4.0, 4.5))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    notes = Notes(torch.device("cpu"))
    for _ in range(2):
        with notes.timed("save_s"):
            pass
    assert notes.take() == {"save_s": 0.75}
    assert notes.take() == {}


def test_each_slice_has_the_latencies_of_its_items_without_those_of_warming_up() -> None:
    channel = Recording(last=2)
    bench = bench_on(channel)
    bench.notes.latency("TTFT", 5.0)
    for _ in bench.measure(repeat([torch.zeros(3)])):
        bench.notes.latency("TTFT", 0.001)
        bench.notes.latency("TPOT", 0.01, 2)
    assert [event.item_latency for event in channel.all(Slice)] == 2 * [{"TTFT": ((348, 1),), "TPOT": ((465, 2),)}]


def test_what_is_postponed_belongs_to_its_slice() -> None:
    """Whether the workload catches up or not, each note is called once, in order."""
    channel, called = Recording(last=4), list[int]()
    bench = bench_on(channel)

    def note(step: int) -> None:
        called.append(step)
        bench.notes.add("steps", 1.0)
        bench.notes.latency("TTFT", 0.001)

    for step, _ in enumerate(bench.measure(repeat([torch.zeros(1)]))):
        bench.notes.postpone(partial(note, step))
        if step % 2:
            bench.notes.catch_up()
    assert called == [0, 1, 2, 3]
    assert [(event.notes, event.item_latency) for event in channel.all(Slice)] == 4 * [
        ({"steps": 1.0}, {"TTFT": ((348, 1),)})
    ]


def test_the_mean_is_per_step_over_the_slices_inside_the_window_and_all_ranks() -> None:
    ranks = [
        [row(0.0, 2, 100.0), row(1.0, 2, 6.0), row(2.0, 1, 3.0), row(2.5, 1, 100.0)],
        [row(1.0, 3, 3.0)],
    ]
    assert notes_per_step(ranks, Window(start_s=1.0, end_s=3.0)) == {"save_s": 2.0}
    assert notes_per_step([[]], Window(start_s=1.0, end_s=3.0)) == {}


def test_a_slice_across_an_edge_counts_with_the_part_inside_as_in_the_rate() -> None:
    rows = [SliceRow(0.0, 4.0, 4, 4, 0.0, notes={"save_s": 3.0}), SliceRow(4.0, 1.0, 6, 6, 0.0, notes={"save_s": 1.0})]
    shared, whole = Window(start_s=3.0, end_s=5.0, edges="shared"), Window(start_s=3.0, end_s=5.0)
    assert notes_per_step([rows], shared) == {"save_s": pytest.approx((3.0 / 4 + 1.0) / (1 + 6))}
    assert notes_per_step([rows], whole) == {"save_s": pytest.approx(1.0 / 6)}


def test_rows_of_before_have_no_notes() -> None:
    for text in (b"[1.0,0.5,3,1,0.0]", b"[1.0,0.5,3,1,0.0,7,[]]"):
        assert msgspec.json.decode(text, type=SliceRow).notes == {}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'[1.0,0.5,3,1,0.0,7,[],{"save_s":-1}]', type=SliceRow)


def row(start_s: float, steps: int, noted: float) -> SliceRow:
    return SliceRow(start_s, 1.0, 3, steps, 0.0, None, (), {"save_s": noted})

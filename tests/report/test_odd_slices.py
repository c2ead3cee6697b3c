"""A slice far from the others, and work that was made before the window: found, told with its cost, and no more."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import make_records
import msgspec
import pytest
from make_records import PER_GPU

from milabench_ng.analysis.launch.odd_slices import far_slice, stock
from milabench_ng.analysis.launch.steadiness import Shape
from milabench_ng.analysis.summary.folder import load
from milabench_ng.records.window import SliceRow, Window, WindowRule, averaging_window, backlog_edges, worked_off


def rows_of(spans: Sequence[tuple[float, int]], backlog: Sequence[int | None] = ()) -> list[SliceRow]:
    """Slices of these lengths and items, one after another from 100 s on."""
    rows, now = [], 100.0
    for place, (length_s, count) in enumerate(spans):
        rows.append(SliceRow(now, length_s, count, 5, 0.0, backlog[place] if backlog else None))
        now += length_s
    return rows


def far(spans: Sequence[tuple[float, int]], start_s: float = 100.0) -> Shape | None:
    """Of slices that fill a window."""
    rows = rows_of(spans)
    return far_slice(rows, Window(start_s=rows[0].start_s, end_s=rows[-1].end_s), start_s)


def test_a_stall_is_told_with_its_place_length_and_cost() -> None:
    """A library tunes itself again for an odd batch: 1,530 images/s, and one slice of 5.3 s in the middle."""
    found = far([(0.5, 765)] * 4 + [(5.3, 144)] + [(0.5, 765)] * 3, start_s=97.0)
    assert found.kind == "stall"
    assert found.detail == (
        "slice 5 of 8 in the window, 5.0 s after the start: 5.3 s at 27.17 items/s, usually 1530; "
        "it cost 5.2 s, 59% of the window"
    )  # 5.3 - 144 / 1530 = 5.206 of 8.8 s


def test_a_stall_of_a_second_is_told_also_among_uneven_slices() -> None:
    """At 10 % noise a third of the usual rate is within 8 standard deviations, and a second is a second."""
    rng = random.Random(1)
    for place in range(3, 14):
        spans = [(0.5, round(1000 * rng.gauss(1, 0.1))) for _ in range(17)]
        spans[place] = (1.5, spans[place][1])
        found = far(spans)
        assert (found.kind, f"slice {place + 1} of 17" in found.detail) == ("stall", True)


def test_a_slice_of_slow_steps_is_no_stall() -> None:
    """Slices of 5 s whose lengths vary by 10 %: a second more is within their noise."""
    rng = random.Random(2)
    assert sum(far([(5 * rng.gauss(1, 0.1), 100) for _ in range(12)]) is not None for _ in range(100)) <= 2


def test_items_that_are_timed_tell_by_their_percentiles_what_waited() -> None:
    rows = rows_of([(0.5, 50)] * 8 + [(0.5, 20)] + [(0.5, 50)] * 8)
    window = Window(start_s=rows[0].start_s, end_s=rows[-1].end_s)
    assert far_slice(rows, window, 0.0) is not None
    timed = [msgspec.structs.replace(row, item_latency={"TPOT": ((0.01, row.count),)}) for row in rows]
    assert far_slice(timed, window, 0.0) is None


def test_a_burst_is_told_too() -> None:
    found = far([(0.5, 100)] * 9 + [(0.5, 200)])
    assert (found.kind, found.detail.rpartition("; ")[2]) == ("burst", "it saved 0.5 s, 10% of the window")


@pytest.mark.parametrize(
    "spans",
    [
        [(0.5, 100)] * 18,
        [(0.5, 100)] * 17 + [(0.5, 80)],  # 20 % from the others
        [(0.5, 100), (0.5, 140)] * 9,  # uneven throughout
        [(0.5, 100)] * 40 + [(0.5, 20)],  # cost 2 % of 20.5 s, less a little
        [(0.5, 100), (0.5, 1), (0.5, 100)],  # of three none is usual
        [(0.5, 0)] * 8,
    ],
)
def test_what_is_no_finding(spans: list[tuple[float, int]]) -> None:
    assert far(spans) is None


def test_noise_alone_is_hardly_ever_a_finding() -> None:
    found = 0
    for seed in range(1000):
        rng = random.Random(seed)
        noise = (0.02, 0.05, 0.1, 0.2)[seed % 4]
        found += far([(0.5, max(0, round(1000 * rng.gauss(1, noise)))) for _ in range(17)]) is not None
    assert found <= 2


def test_items_worked_off_by_hand() -> None:
    spans = [(1.0, 100)] * 8
    falling = rows_of(spans, [70, 60, 50, 40, 30, 20, 10, 0])
    assert backlog_edges(falling) == (70, 5.0)
    assert worked_off(falling) == pytest.approx((70 - 5) * 8 / 6)
    assert backlog_edges(falling[:3]) == (70, 50.0)
    assert worked_off(falling[:3]) == pytest.approx((70 - 50) * 3 / 2)
    assert worked_off(rows_of(spans, [0, 10, 20, 30, 40, 50, 60, 70])) == 0.0
    assert worked_off(rows_of(spans, [5] * 8)) == 0.0
    assert worked_off(rows_of(spans)) == 0.0
    assert worked_off(falling[:1]) == 0.0
    found = stock(falling)
    assert (
        found.detail
        == "87 items (10.8% of the window's) were prefetched before the window, so the rate is too high by that much"
    )
    assert stock(rows_of(spans, [3, 3, 3, 3, 0, 0, 0, 0])) is None  # 4 of 800: half a percent
    assert stock(rows_of(spans, [4, 4, 3, 3, 0, 0, 0, 0])) is not None
    assert stock(rows_of([(1.0, 0)] * 8, [70, 60, 50, 40, 30, 20, 10, 0])) is None  # no item, no part of them


def test_both_are_flags_of_a_launch_that_counts(tmp_path: Path) -> None:
    whole = make_records.plan("standard", {"convnet_fp16": PER_GPU}, 1, 1)
    made = make_records.record(whole.launches[0], make_records.steady, start_s=100.0, stop_s=125.0)
    spans = [(15.5, 100), (0.5, 765), (0.5, 765), (5.3, 144), (0.5, 765), (0.5, 765), (0.5, 765), (1.5, 2295)]
    rows = rows_of(spans, [0, 900, 800, 300, 200, 100, 0, 0])
    made["mnb"]["ranks"][0]["slices"] = [
        [row.start_s, row.length_s, row.count, 5, row.wait_s, row.backlog] for row in rows
    ]
    make_records.write_manifest(tmp_path, whole)
    make_records.write(tmp_path, made)
    row = load(tmp_path).tests["standard.convnet_fp16"]
    assert (row.n, row.failures) == (1, 0)
    assert [flag.kind for flag in row.flags] == ["stall", "backlog"]


def test_a_stall_over_an_edge_is_in_no_rate_and_told() -> None:
    rows = rows_of([(0.5, 50)] * 20 + [(2.6, 50)])  # from 110.0 s on
    window = Window(start_s=102.9, end_s=111.9)
    found = far_slice(rows, window, start_s=100.0)
    assert found.kind == "stall"
    assert found.detail == (
        "a slice across its boundary, 10.0 s after the start: 2.6 s at 19.23 items/s, usually 100; it hid 1.5 "
        "s, 17% of the window"
    )  # 1.9 of 2.6 s are inside, and of 2.6 s 2.1 were lost
    assert far_slice(rows_of([(0.5, 50)] * 30), Window(start_s=102.8, end_s=111.8), start_s=100.0) is None


@pytest.mark.parametrize(
    ("spans", "full"),
    [
        ([(0.5, 50)] * 24, True),
        ([(0.5, 50)] * 6 + [(30.0, 50)], False),  # 0.5 s before the stall would be the whole window
        ([(0.5, 50)] * 22 + [(5.0, 50)], False),
        ([(0.5, 50)] * 19 + [(1.6, 50)] + [(0.5, 50)], True),  # 7.5 of 9 s
        ([(0.5, 50)] * 18 + [(2.6, 50)] + [(0.5, 50)], False),  # 6.5 s
        ([(0.9, 1)] * 16, True),  # slow steps: the window reaches back to the tenth
        ([(2.9, 1)] * 16, True),
    ],
)
def test_a_window_is_covered_by_its_slices(spans: list[tuple[float, int]], full: bool) -> None:
    rows = rows_of(spans)
    rows = [SliceRow(row.start_s, row.length_s, row.count, 1 if row.count == 1 else 5, 0.0) for row in rows]
    assert (averaging_window([rows], rows[-1].end_s, WindowRule()) is not None) == full

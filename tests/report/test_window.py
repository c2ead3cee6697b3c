"""The averaging window, at its edges."""

from __future__ import annotations

import math

import msgspec
import pytest
from msgspec import UNSET

from milabench_ng.records.window import (
    MEASURED_BY,
    SliceRow,
    Window,
    WindowRule,
    averaging_window,
    first_full,
    launch_perf,
    rate,
    settled_since,
    settled_window,
    wait_share,
)

RULE = WindowRule()


def rows(*spans: tuple[float, float], count: int = 10, steps: int = 5) -> list[SliceRow]:
    return [SliceRow(start, end - start, count, steps, 0.0) for start, end in spans]


def test_window_is_stop_minus_ten_to_stop_minus_one() -> None:
    halves = rows(*((i / 2, i / 2 + 0.5) for i in range(100)))
    assert averaging_window([halves], 50.0, RULE) == Window(start_s=40.0, end_s=49.0)


def test_only_slices_wholly_inside_count() -> None:
    window = Window(start_s=40.0, end_s=49.0)
    at_the_edges = rows((40.0, 40.5), (48.5, 49.0), count=30)
    across = rows((39.75, 40.25), (48.75, 49.25), count=1000)
    assert rate([*across, *at_the_edges], window) == 60.0
    assert math.isnan(rate(across, window))


def test_of_a_slice_across_an_edge_the_part_inside_counts() -> None:
    window = Window(start_s=40.0, end_s=49.0, edges="shared")
    inside = rows((40.5, 48.0), count=150)
    across = rows((39.5, 40.5), (48.0, 52.0), count=20)
    # half of the first and a quarter of the last: 10 + 150 + 5 in 0.5 + 7.5 + 1 s
    assert rate([*across, *inside], window) == pytest.approx(165 / 9, rel=1e-12)
    waited = [SliceRow(39.5, 1.0, 20, 5, 0.4), SliceRow(40.5, 8.5, 150, 5, 1.0)]
    assert wait_share(waited, window) == pytest.approx((0.2 + 1.0) / 9, rel=1e-12)
    assert math.isnan(rate(rows((30.0, 40.0), (49.0, 50.0)), window))


def test_a_run_shares_the_slices_at_its_edges_and_older_records_do_not() -> None:
    assert MEASURED_BY.edges == "shared"
    assert msgspec.convert({"settle_s": 2.0, "length_s": 9.0, "margin_s": 1.0}, WindowRule).edges is UNSET
    halves = rows(*((i / 2, i / 2 + 0.5) for i in range(100)))
    assert averaging_window([halves], 50.0, MEASURED_BY) == Window(start_s=40.0, end_s=49.0, edges="shared")


def test_a_rank_has_settled_after_two_seconds_and_after_what_began_in_them() -> None:
    assert settled_since(rows((0.0, 0.5), (0.5, 1.0)), 0.0, RULE) == 2.0
    assert settled_since(rows((10.0, 11.5), (11.5, 14.5), (14.5, 15.0)), 10.0, RULE) == 14.5
    # The first slice of ssd on an H200: 8.4 s of autotuning, then the 2 s begin again, and a slice began in them.
    assert settled_since(rows((0.0, 8.4), (8.4, 9.2), (9.2, 10.1), (10.1, 10.9), (10.9, 11.7)), 0.0, RULE) == 10.9


def test_full_is_the_first_slice_end_that_leaves_a_window_of_steady_work() -> None:
    halves = [(0.5 * i, 0.5 * i + 0.5) for i in range(60)]
    assert first_full(rows(*halves), 0.0, RULE, 0) == 12.0  # 2 s to settle, 9 s, and 1 s before the stop
    assert first_full(rows(*halves), 0.0, RULE, 300) == 15.0  # 10 items a slice
    assert first_full(rows(*halves[:23]), 0.0, RULE, 0) is None
    warm_up = rows((0.0, 8.5), *((8.5 + at, 8.5 + end) for at, end in halves))
    assert first_full(warm_up, 0.0, RULE, 0) == 20.5  # settled 2 s after the long slice
    slow = rows(*((4.0 * i, 4.0 * i + 4.0) for i in range(25)), steps=1)  # settled at 8 s; ten steps end at 48 s
    assert first_full(slow, 0.0, RULE, 0) == 52.0
    working_off = [
        msgspec.structs.replace(row, backlog=max(0, 40 - place)) for place, row in enumerate(rows(*halves, count=10))
    ]
    # Of a window's 180 items, 0.9 may have been made before it: it begins with slice 40, where the backlog is 0.
    assert first_full(working_off, 0.0, RULE, 0) == 30.0


def test_a_rank_that_begins_late_settles_from_its_own_beginning() -> None:
    """As its meter counts, which knows nothing of the start line; a busy node kept this one for 3 s."""
    late = rows(*((3.0 + 0.5 * i, 3.5 + 0.5 * i) for i in range(30)))
    assert settled_since(late, 0.0, RULE) == 5.0
    assert first_full(late, 0.0, RULE, 0) == 15.0


def test_each_rank_has_settled_before_its_own_window_and_the_common_one_begins_with_the_first() -> None:
    early = rows((0.0, 3.0), *((3.0 + 2 * i, 5.0 + 2 * i) for i in range(8)), steps=1)  # settled at 5
    late = rows((0.0, 3.5), *((3.5 + 2 * i, 5.5 + 2 * i) for i in range(10)), steps=1)  # settled at 5.5
    short = WindowRule(settle_s=2.0, length_s=9.0, margin_s=1.0)
    assert settled_since(early, 0.0, short) == 5.0
    assert settled_since(late, 0.0, short) == 5.5
    assert settled_window([early, late], 20.0, short, 0.0) is None  # early has 7 steps since 5
    early += rows(*((19.0 + 2 * i, 21.0 + 2 * i) for i in range(4)), steps=1)
    late += rows((23.5, 25.5), (25.5, 27.5), steps=1)
    assert settled_window([early, late], 26.5, short, 0.0) == Window(start_s=5.0, end_s=25.5)  # ten steps of each
    assert settled_window([early, late], 26.0, short, 0.0) is None  # late has nine until 25


def test_window_grows_until_it_holds_ten_steps() -> None:
    slow = rows(*((4.0 * i, 4.0 * i + 4.0) for i in range(25)), count=8, steps=1)  # one step in 4 s, until 100
    window = averaging_window([slow], 101.0, RULE)
    assert window == Window(start_s=60.0, end_s=100.0)
    assert launch_perf([slow], window) == 2.0
    nine = slow[-9:]
    assert averaging_window([nine], 101.0, RULE) is None
    assert averaging_window([slow[-10:]], 101.0, RULE) == window


def test_a_step_after_the_margin_does_not_count_towards_ten() -> None:
    slow = rows(*((4.0 * i, 4.0 * i + 4.0) for i in range(25)), count=8, steps=1)
    assert averaging_window([slow], 100.5, RULE) == Window(start_s=56.0, end_s=99.5)


def test_every_rank_needs_its_steps_and_the_slowest_decides() -> None:
    fast = rows(*((i / 2, i / 2 + 0.5) for i in range(200)))
    slow = rows(*((4.0 * i, 4.0 * i + 4.0) for i in range(25)), count=8, steps=1)
    assert averaging_window([fast, slow], 101.0, RULE) == Window(start_s=60.0, end_s=100.0)
    assert averaging_window([fast, []], 101.0, RULE) is None
    assert averaging_window([], 101.0, RULE) is None


def test_rate_is_items_over_seconds_not_the_mean_of_rates() -> None:
    window = Window(start_s=0.0, end_s=10.0)
    uneven = [SliceRow(0.0, 1.0, 100, 1, 0.25), SliceRow(1.0, 3.0, 100, 1, 0.75)]
    assert rate(uneven, window) == 50.0
    assert wait_share(uneven, window) == 0.25


def test_perf_over_ranks_is_their_mean() -> None:
    window = Window(start_s=0.0, end_s=10.0)
    assert launch_perf([rows((0.0, 1.0), count=30), rows((0.0, 1.0), count=50)], window) == 40.0
    assert math.isnan(launch_perf([rows((0.0, 1.0)), rows((20.0, 21.0))], window))


@pytest.mark.parametrize(
    ("length", "margin", "comparable"), [(9, 1, True), (12, 1, True), (8.9, 1, False), (9, 0, False)]
)
def test_a_shortened_window_is_not_comparable(length: float, margin: float, comparable: bool) -> None:
    assert WindowRule(length_s=length, margin_s=margin).comparable is comparable

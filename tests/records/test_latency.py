"""Latencies: their buckets and quantiles by hand, and what fits into an event."""

from __future__ import annotations

import math
import random
from collections import Counter
from select import PIPE_BUF

import msgspec
import pytest

from milabench_ng.model.events import Slice, encode
from milabench_ng.records.latency import (
    LAST,
    MOST,
    SHORTEST_S,
    batches,
    bucket_of,
    histogram,
    merged,
    middle_s,
    quantile_s,
)
from milabench_ng.records.window import SliceRow, Window, item_latencies, latencies


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0.0, 0),
        (1e-6, 0),
        (1.01e-6, 0),
        (1.03e-6, 1),  # 1.02 to 1.0404 us
        (2e-6, 35),  # ln 2 / ln 1.02 = 35.003
        (1e-3, 348),  # ln 1000 / ln 1.02 = 348.83
        (1e-2, 465),  # 465.10
        (1.0, 697),  # 697.65
        (1e9, LAST),
    ],
)
def test_buckets(seconds: float, bucket: int) -> None:
    assert bucket_of(seconds) == bucket
    if 0 < seconds < 1e6:
        assert lower_s(bucket) <= seconds < lower_s(bucket + 1)


def lower_s(bucket: int) -> float:
    """The lower bound of a bucket, which is the upper bound of the one before."""
    return float(SHORTEST_S * 1.02**bucket)


def test_a_bucket_is_two_percent_wide_and_its_middle_at_most_one_off() -> None:
    assert middle_s(348) == pytest.approx(math.sqrt(lower_s(348) * lower_s(349)), rel=1e-12)
    assert middle_s(348) == pytest.approx(0.9934817e-3, rel=1e-5)  # 1.02 ** 348.5 us
    assert lower_s(349) / middle_s(348) < 1.01


def test_a_histogram_counts_and_sums() -> None:
    one = histogram([1e-2, 1e-3, 1.001e-3, 1e-3])
    assert one == ((348, 3), (465, 1))
    assert merged([one, (), histogram([1e-2, 1.0])]) == ((348, 3), (465, 2), (697, 1))
    assert batches(one) == 4
    assert histogram([]) == merged([]) == ()
    assert histogram(Counter({1e-3: 3, 1e-2: 2})) == ((348, 3), (465, 2))


@pytest.mark.parametrize(
    ("share", "bucket"),
    [(0.0, 348), (0.5, 348), (0.98, 348), (0.981, 465), (0.99, 465), (1.0, 697)],
)
def test_quantiles_are_of_the_nearest_rank(share: float, bucket: int) -> None:
    """98 of 1 ms, one of 10 ms and one of 1 s: the 99th is 10 ms."""
    assert quantile_s(((348, 98), (465, 1), (697, 1)), share) == middle_s(bucket)


def test_a_quantile_of_nothing() -> None:
    assert math.isnan(quantile_s((), 0.5))


def test_quantiles_of_many_are_off_by_at_most_one_percent() -> None:
    rng = random.Random(0)
    values = sorted(rng.lognormvariate(-5.0, 1.0) for _ in range(2000))
    found = merged(histogram(values[begin::7]) for begin in range(7))
    for share in (0.01, 0.5, 0.9, 0.99):
        exact = values[math.ceil(share * len(values)) - 1]
        assert quantile_s(found, share) == pytest.approx(exact, rel=0.0100001)


def test_too_many_buckets_are_joined_upwards() -> None:
    """Of 600 neighbouring buckets four at a time take the place of the last: 150 remain."""
    made = histogram(middle_s(bucket) for bucket in range(100, 700))
    assert made == tuple((bucket, 4) for bucket in range(103, 700, 4))
    assert histogram(middle_s(bucket) for bucket in range(MOST)) == tuple((bucket, 1) for bucket in range(MOST))


def test_the_longest_event_of_a_slice_fits_into_one_line() -> None:
    event = Slice(
        rank=4095,
        start_s=123456789.123456789,
        length_s=123.123456789012345,
        count=10**12,
        steps=10**9,
        wait_s=12.123456789012345,
        backlog=10**9,
        latency=tuple((bucket, 999_999) for bucket in range(LAST - MOST + 1, LAST + 1)),
    )
    assert len(encode(event)) < PIPE_BUF == 4096
    third = event.latency[: MOST // 3]
    shared = msgspec.structs.replace(
        event,
        latency=third,
        item_latency={"TTFT": third, "TPOT": third},
        notes=dict.fromkeys(("said", "in_time", "fed", "attended", "seen", "passes"), 123456789.0),
    )
    assert len(encode(shared)) < PIPE_BUF


def test_rows_of_before_have_no_latency() -> None:
    for text in (b"[1.0,0.5,3,1,0.0]", b"[1.0,0.5,3,1,0.0,7]"):
        assert msgspec.json.decode(text, type=SliceRow).latency == ()
    row = SliceRow(1.0, 0.5, 3, 1, 0.0, None, ((348, 1),))
    assert msgspec.json.decode(msgspec.json.encode(row), type=SliceRow) == row


@pytest.mark.parametrize("latency", [[[-1, 1]], [[LAST + 1, 1]], [[0, 0]], [[0]], [[0.5, 1]]])
def test_an_impossible_histogram_is_refused(latency: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert([1.0, 0.5, 3, 1, 0.0, None, latency], SliceRow)


def test_rows_of_before_have_no_latencies_of_items() -> None:
    assert msgspec.json.decode(b"[1.0,0.5,3,1,0.0,7,[[348,1]],{}]", type=SliceRow).item_latency == {}
    row = SliceRow(1.0, 0.5, 3, 1, 0.0, None, (), {}, {"TTFT": ((348, 1),)})
    assert msgspec.json.decode(msgspec.json.encode(row), type=SliceRow) == row


def test_latencies_of_items_are_those_of_the_window_and_of_all_ranks() -> None:
    rows = [SliceRow(at, 1.0, 1, 1, 0.0, None, (), {}, {"TTFT": ((at, 1),)}) for at in (0, 1, 2, 3)]
    other = [SliceRow(1.0, 1.0, 1, 1, 0.0, None, (), {}, {"TTFT": ((1, 4),), "TPOT": ((9, 2),)})]
    found = item_latencies([rows, other], Window(start_s=1.0, end_s=3.0))
    assert found == {"TTFT": ((1, 5), (2, 1)), "TPOT": ((9, 2),)}


def test_only_slices_of_the_window_count() -> None:
    rows = [SliceRow(at, 1.0, 1, 1, 0.0, None, ((at, 1),)) for at in (0, 1, 2, 3)]
    assert latencies(rows, Window(start_s=1.0, end_s=3.0)) == ((1, 1), (2, 1))
    assert latencies(rows, Window(start_s=0.5, end_s=3.5)) == ((1, 1), (2, 1))

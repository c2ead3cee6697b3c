"""The telemetry of a batch: kept as it was sampled, read back without trust, and drawn over the run."""

from __future__ import annotations

import gzip
import math

import msgspec
import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE
from milabench_ng.present.html.conditions_chart import BINS, conditions_charts, in_turn
from milabench_ng.present.html.figures import Box, Curve
from milabench_ng.records.names import is_result_file
from milabench_ng.records.series import BatchSeries, KeySeries, decode_series, encode_series
from milabench_ng.telemetry.messages import Sample
from milabench_ng.telemetry.recorder import Recorder


def batch(
    number: int, begin_s: float, session: int = 1, power: tuple[float | None, ...] = (100.0, 300.0)
) -> BatchSeries:
    """Samples one minute apart."""
    times = tuple(begin_s + 60.0 * (1 + place) for place in range(len(power)))
    return BatchSeries(
        run_id="r",
        session=session,
        batch=number,
        labels=("s.vae",),
        requested_s=begin_s,
        start_s=begin_s + 1,
        stop_s=begin_s + 100,
        telemetry={"gpu:GPU-1": KeySeries(time_s=times, values={"power_w": power})},
    )


def test_columns_hold_what_was_read_between_two_moments() -> None:
    recorder = Recorder()
    for time_s, values in (
        (1.0, {"a": 1.0}),
        (2.0004, {"a": 2.3456789, "b": 7.0}),
        (3.0, {"a": 3.0}),
        (9.0, {"a": 9.0}),
    ):
        recorder.feed(Sample(time_s=time_s, source="tenant", key="0", values=values))
    found = recorder.series([("tenant", "0"), ("tenant", "1"), ("host", "node")], 1.0, 3.0)
    assert found == {
        "tenant:0": KeySeries(time_s=(1.0, 2.0, 3.0), values={"a": (1.0, 2.34568, 3.0), "b": (None, 7.0, None)})
    }
    assert recorder.series([("tenant", "0")], 4.0, 5.0) == {}


def test_a_file_is_read_back_and_is_always_the_same() -> None:
    made = batch(3, 50.0, power=(1.0, None, 3.5))
    content = encode_series(made)
    assert decode_series(content, "s") == made
    assert encode_series(made) == content, "no date of its own"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"{}", "not a series"),
        (gzip.compress(b"{}", mtime=0), "the key 'run_id' is missing"),
        (encode_series(batch(1, 0.0))[:-9], "not a series"),
        (gzip.compress(b" " * (LARGE + 2), mtime=0), "it holds more than 64 MiB"),
    ],
    ids=("empty", "plain", "no series", "cut", "too large"),
)
def test_what_is_no_series_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        decode_series(content, "s")


def test_a_column_that_is_too_short_is_refused() -> None:
    made = batch(1, 0.0)
    short = msgspec.structs.replace(made.telemetry["gpu:GPU-1"], values={"power_w": (1.0,)})
    with pytest.raises(InputError, match="gpu:GPU-1: a column is not as long as the times"):
        decode_series(encode_series(msgspec.structs.replace(made, telemetry={"gpu:GPU-1": short})), "s")


@pytest.mark.parametrize("times", [(), (61.0, 60.0), (-1.0,), (1e300,)], ids=str)
def test_times_that_no_clock_had_are_refused(times: tuple[float, ...]) -> None:
    made = batch(1, 0.0)
    odd = msgspec.structs.replace(made, telemetry={"gpu:GPU-1": KeySeries(time_s=times, values={})})
    with pytest.raises(InputError, match="the times are not those of a launch group"):
        decode_series(encode_series(odd), "s")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("series/b0.20261126-033659-195046.json.gz", True),
        ("series/b0.json.gz", False),
        ("series/../b0.20261126-033659-195046.json.gz", False),
        ("b0.20261126-033659-195046.json.gz", False),
    ],
)
def test_which_files_belong_to_a_run(name: str, own: bool) -> None:
    assert is_result_file(name) is own


def test_sessions_follow_each_other_whatever_their_clocks() -> None:
    """The second session came after a restart of the node: its clock began anew."""
    placed = list(in_turn([batch(2, 5.0, session=2), batch(1, 1000.0), batch(0, 700.0)]))
    assert [(one.series.batch, one.begin, one.end) for one in placed] == [(0, 0.0, 2.0), (1, 5.0, 7.0), (2, 7.0, 9.0)]
    assert placed[1].minutes(1030.0) == 5.5


def test_the_chart_of_a_run() -> None:
    (chart,) = conditions_charts([batch(0, 0.0), batch(1, 120.0, power=(None, 200.0))], ())
    (view,) = chart.views
    (panel,) = view.panels
    bands = [part for part in panel.parts if isinstance(part, Box)]
    assert [(band.begin[0], band.end[0], band.title) for band in bands] == [(0.0, 2.0, "s.vae"), (2.0, 4.0, "s.vae")]
    (line,) = [part for part in panel.parts if isinstance(part, Curve)]
    width = 4.0 / BINS
    assert [value for _, value in line.points] == [100.0, 300.0, 200.0]
    assert [math.floor(at / width) for at, _ in line.points] == [100, 200, 400]
    assert (line.title, view.name) == ("gpu GPU-1", "power (W)")
    assert list(conditions_charts((), ())) == []

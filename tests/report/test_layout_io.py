"""The data-loading study: its columns, its charts, the load of GPUs, and the figures that it published."""

from __future__ import annotations

import csv
import struct
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from browser import PROGRAMS, find_browser
from make_records import PER_GPU
from printing import text_of
from rows import row_of
from tampering import changing

from milabench_ng.analysis.launch.load_course import LoadCourse, course
from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.analysis.summary.summary import ReadLimit, Stat, Summary, TestSummary
from milabench_ng.model.units import MIB
from milabench_ng.present.html.figures import Box, Curve, Segment
from milabench_ng.present.html.folder_details import details_of
from milabench_ng.present.html.loading_charts import loading_charts
from milabench_ng.present.layouts.data_loading import epoch_edges, file_tables, loading_results
from milabench_ng.present.writers import Form, write_layout
from milabench_ng.records.folder import read_folder
from milabench_ng.records.window import SliceRow
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import build_report, make_report

ROOT = Path(__file__).parents[2]
HEAD = [
    *("loading_strategy", "repetition", "io_limit", "epoch_mean_s", "gpu_util_fraction", "images_per_s(740/epoch)"),
]
LIMIT = ReadLimit(1000 * MIB, "io.max")


def row(strategy: str, rates: dict[str, float], **fields: Any) -> TestSummary:
    """A test on two devices."""
    return row_of(
        n=2 * len(rates),
        failures=0,
        train=Stat.of(list(rates.values())),
        unit="images",
        classic_factor=1.0,
        options={"strategy": strategy, "batch_size": 6},
        devices=2,
        repeats=rates,
        **fields,
    )


def report_on(**rows: TestSummary) -> Report:
    whole: Summary = load_baseline("io-rtx4090")
    tests = {f"io.{name}": each for name, each in rows.items()}
    return build_report(msgspec.structs.replace(whole, devices=2, tests=tests), "results")


def written(report: Report, form: Form) -> str:
    return text_of(write_layout, report, "io", form)


def small() -> Report:
    """7.4 images a second make an epoch of 100 s."""
    return report_on(
        ring=row("ring_buffer", {"0": 37.0}, gpu_load={"0": 0.9}),
        first=row("original", {"0": 7.4, "1": 9.25}, gpu_load={"0": 0.2, "1": 0.4}),
        slow=row("original", {"0": 3.7}, read_limits=(LIMIT,)),
        asked=row("blosc", {"0": 7.4}, read_limits=(ReadLimit(MIB, "none"),)),
    )


def test_a_row_for_each_strategy_limit_and_repetition() -> None:
    assert list(csv.reader(written(small(), "csv").splitlines())) == [
        HEAD,
        ["original", "0", "unlimited", "100.000000", "0.200000", "7.40"],
        ["original", "1", "unlimited", "80.000000", "0.400000", "9.25"],
        ["ring-buffer", "0", "unlimited", "20.000000", "0.900000", "37.00"],
        ["blosc", "0", "unlimited (1 MiB/s asked, not held)", "100.000000", "-", "7.40"],
        ["original", "0", "1000 MiB/s", "200.000000", "-", "3.70"],
    ]


def test_markdown_has_a_table_for_each_limit_with_deviation_and_ratio() -> None:
    text = written(small(), "markdown")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [
        "unlimited",
        "unlimited (1 MiB/s asked, not held)",
        "1000 MiB/s",
    ]
    assert "| original | 90.00 +- 14.14 | 8.22 | 0.300 | 1.00 | io.first |" in text
    assert "| +ring-buffer | 20.00 | 37.00 | 0.900 | 4.50 | io.ring |" in text
    assert "| +blosc | 100.00 | 7.40 | - | - | io.asked |" in text  # no original under the same limit


def test_bars_of_the_charts() -> None:
    epochs, load = loading_charts(small(), ())
    (panel,) = epochs.views[0].panels
    bars = {part.title: part for part in panel.parts if isinstance(part, Box)}
    assert "original, unlimited: 90" in bars
    assert "+ring-buffer, unlimited: 20" in bars
    assert all(0 < bar.end[0] - bar.begin[0] < 0.8 / 2 for bar in bars.values())
    (spread,) = (part for part in panel.parts if isinstance(part, Segment))
    assert (spread.begin[1], spread.end[1]) == pytest.approx((90 - 14.142, 90 + 14.142), abs=1e-3)
    samples = {key.name: key.sample for key in epochs.views[0].keys}
    assert [sample.dashed for sample in samples.values() if isinstance(sample, Box)] == [False, False, True]
    assert list(samples)[2] == "1000 MiB/s"
    assert [tick.text for tick in panel.x.ticks] == ["original", "+blosc", "+ring-buffer"]
    assert "original, unlimited: 30" in [part.title for part in load.views[0].panels[0].parts if isinstance(part, Box)]
    assert not tuple(loading_charts(build_report(load_baseline("unet3d-v100"), "results"), ()))


def test_a_course_has_its_mean_and_its_deviation_as_far_as_all_launches_went() -> None:
    seen = [LoadCourse(label="io.ring", job_id="0.0", loads=(0.0, 0.5, 1.0))]
    seen += [LoadCourse(label="io.ring", job_id="0.1", loads=(0.2, 0.7)), LoadCourse(label="io.x", job_id="", loads=())]
    _, chart, _ = loading_charts(small(), seen)
    around, middle = chart.views[0].panels[0].parts
    assert isinstance(middle, Curve)
    assert isinstance(around, Curve)
    assert middle.title == "+ring-buffer"
    assert list(chain(*middle.points)) == pytest.approx([0.0, 10.0, 1.0, 60.0])
    assert list(chain(*around.points)) == pytest.approx([0.0, 20.0, 1.0, 70.0, 1.0, 50.0, 0.0, 0.0])


def test_when_a_step_of_the_epoch_is_reached_follows_from_the_items() -> None:
    """Nothing is done in the first second, 50 items in the next, 50 in the two after it: an epoch of 100."""
    rows = [SliceRow(100.0, 1.0, 0, 0, 1.0), SliceRow(101.0, 1.0, 50, 1, 0.0), SliceRow(102.0, 2.0, 50, 1, 0.0)]
    samples = [(100.0, 0.0), (101.0, 0.1), (102.0, 0.2), (104.0, 0.4)]  # a tenth for each second
    found = course(samples, rows, 100.0, 100)
    assert len(found) == 101
    assert [found[at] for at in (25, 50, 75, 100)] == pytest.approx([0.15, 0.2, 0.3, 0.4])
    assert len(course(samples, rows, 100.0, 200)) == 51  # half an epoch
    assert len(course(samples, rows, 100.0, 50)) == 101  # two epochs: the first
    assert course(samples[:1], rows, 100.0, 100) == ()
    assert course(samples, [], 100.0, 100) == ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two devices of 100 and 102 images a second, 740 of them in 7.4 and 7.25 s, whose load grows by a tenth a second.

    The fence holds their reads to 1000 MiB/s.
    """
    place = tmp_path_factory.mktemp("io") / "run"
    make_records.write_run(place, make_records.plan("io", {"hsi_segmentation": PER_GPU}, 2, 1), slices=60)
    for path in place.glob("io.*.json"):
        with changing(path) as made:
            (device,) = made["devices"]
            begin = made["mnb"]["start_s"]
            gauge = {"n": 20, "min": 0.0, "mean": 50.0 + 20 * device, "max": 100.0, "span_s": 10.0}
            made["mnb"]["telemetry"] = {f"gpu:GPU-{device}": {"utilization_pct": gauge}}
            made["mnb"]["sampled"] = {"start_s": begin, "end_s": begin + 10, "interval_s": 0.5, "dropped": 0}
            made["mnb"]["gpu_load"] = {f"GPU-{device}": [[begin + at, at / 10] for at in range(11)]}
            made["mnb"]["isolation"][str(device)]["io"] = {
                "method": "io.max",
                "device": "8:0",
                "disk": "sda",
                "read_bytes_per_s": 1000 * MIB,
            }
    return place


def test_a_result_folder_has_load_limit_and_course(folder: Path) -> None:
    report = make_report(folder)
    (result,) = loading_results(report)
    assert (result.strategy, result.limit, result.limited) == ("ring_buffer", "1000 MiB/s", True)
    assert result.loads == (pytest.approx(0.6),)  # of 50 % and 70 %
    assert result.epochs_s == (pytest.approx(740 / 101),)
    first, second = sorted(details_of(read_folder(folder)).loads, key=lambda each: each.job_id)
    assert (first.label, len(first.loads)) == ("io.hsi_segmentation", 101)
    assert (first.loads[100], second.loads[100]) == (pytest.approx(0.74, abs=1e-3), pytest.approx(0.7255, abs=1e-3))


def test_the_published_figures() -> None:
    """The study's own table."""
    report = make_report(ROOT / "baselines" / "io-rtx4090.json")
    rows = list(csv.reader(written(report, "csv").splitlines()))
    assert len(rows) == 31
    assert ["original", "0", "unlimited", "58.037800", "0.375988", "12.75"] in rows
    assert ["ring-buffer", "1", "1000 MiB/s", "26.035516", "0.876000", "28.42"] in rows
    text = written(report, "markdown")
    assert "| original | 92.71 +- 0.41 | 7.98 | 0.231 | 1.00 |" in text
    assert "| +ring-buffer | 24.28 +- 0.07 | 30.48 | 0.936 | 2.41 |" in text
    assert "| +ring-buffer | 26.02 +- 0.05 | 28.44 | 0.875 | 3.56 |" in text
    assert report.summary.provenance.kind == "published"


@pytest.mark.skipif(find_browser() is None, reason=f"none of {', '.join(PROGRAMS)} is on the PATH")
def test_the_charts_are_drawn_as_files(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "loading-plots"), str(folder), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    assert sorted(path.stem for path in tmp_path.glob("*.svg")) == ["loading-epochs", "loading-load"]  # under a limit
    for path in tmp_path.glob("*.svg"):
        assert path.read_text().startswith("<svg")
        width, height = struct.unpack(">2I", path.with_suffix(".png").read_bytes()[16:24])
        assert (width, height) == (1720, 892)


def test_epochs_begin_where_the_one_before_ends() -> None:
    """By hand: 370 images a second, then 740: epochs of 2 s and 1.5 s, and 370 images of a third."""
    rows = [SliceRow(10.0 + at, 1.0, count, 1, 0.0) for at, count in enumerate((370, 370, 370, 740))]
    assert list(epoch_edges(rows)) == [10.0, 12.0, 13.5]
    assert list(epoch_edges([])) == []


def test_timings_have_every_epoch_and_say_which_the_study_keeps(tmp_path: Path) -> None:
    """At 100 images a second for 60 s: eight epochs of 7.4 s."""
    whole = make_records.plan("io", {"hsi_segmentation": make_records.PER_GPU}, 1, 1)
    make_records.write_run(tmp_path, whole, rate=lambda _launch, _rank: 100.0)
    (timings,) = file_tables(make_report(tmp_path))
    assert [row[2] for row in timings.rows] == list(range(8))
    assert {row[3] for row in timings.rows} == {"7.400000"}
    assert [row[6] for row in timings.rows] == [False] * 2 + [True] * 6

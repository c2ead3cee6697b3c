"""Latencies of items and curves over an option: from the slices to every form of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_records
import pytest
import tampering
from make_records import PER_GPU
from printing import text_of

from milabench_ng.analysis.summary.folder import encode_summary, load, load_baseline
from milabench_ng.analysis.summary.summary import Latency
from milabench_ng.present.html.as_html import report_page, write
from milabench_ng.present.writers import Form, write_report
from milabench_ng.report.reporting import make_report

TESTS = {"serve_1": 1, "serve_8": 8, "serve_64": 64}
RATES = {"serve_1": 100.0, "serve_8": 640.0, "serve_64": 3200.0}
P50_MS = 1.02**348.5 / 1e3
P99_MS = 1.02**465.5 / 1e3
UNIT = "tokens/s per user"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three tests that differ in their concurrency; in each slice one first token of 10 ms, and 9 others of 1 ms."""
    whole = make_records.plan("quick", {**dict.fromkeys(TESTS, PER_GPU), "vae": PER_GPU}, 1, 1)
    make_records.write_run(tmp_path / "run", whole, lambda launch, *_: RATES.get(launch.test[6:], 50.0), slices=40)
    for name, concurrency in TESTS.items():
        for path in (tmp_path / "run").glob(f"quick.{name}.J*"):
            tampering.rewrite(path, lambda content, at=concurrency: serving(content, at))
    return tmp_path / "run"


def serving(content: dict[str, Any], concurrency: int) -> None:
    mnb = content["mnb"]
    mnb["launch"]["arguments"]["concurrency"] = concurrency
    mnb["launch"]["workload"] = "llm_serve"
    mnb["derived"] = [{"unit": UNIT, "formula": "rate / concurrency", "curve_over": "concurrency"}]
    for row in mnb["ranks"][0]["slices"]:
        row += [None, [], {}, {"TTFT": [[465, 1]], "TPOT": [[348, 9]]}]


def printed(folder: Path, form: Form) -> str:
    return text_of(write_report, make_report(folder), form)


def test_the_summary_merges_the_windows_of_all_launches(folder: Path) -> None:
    found = load(folder).tests["quick.serve_8"].item_latency
    assert found["TTFT"] == Latency(batches=18, p50_ms=pytest.approx(P99_MS), p99_ms=pytest.approx(P99_MS))
    assert found["TPOT"] == Latency(batches=162, p50_ms=pytest.approx(P50_MS), p99_ms=pytest.approx(P50_MS))
    assert load(folder).tests["quick.vae"].item_latency == {}


def test_a_stored_summary_keeps_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text(encode_summary(load(folder)))
    assert load_baseline(str(tmp_path / "base.json")).tests == load(folder).tests


def test_tests_that_differ_in_one_option_are_a_curve(folder: Path) -> None:
    (curve,) = make_report(folder).rate_curves
    assert (curve.name, curve.over, curve.against) == ("serve", "concurrency", UNIT)
    assert [(point.at, point.test) for point in curve.points] == [
        (1, "quick.serve_1"),
        (8, "quick.serve_8"),
        (64, "quick.serve_64"),
    ]
    assert [point.perf for point in curve.points] == pytest.approx([100.0, 640.0, 3200.0], rel=0.01)
    assert [point.against for point in curve.points] == pytest.approx([100.0, 80.0, 50.0], rel=0.01)


def test_another_option_begins_another_curve(folder: Path) -> None:
    for path in folder.glob("quick.serve_64.J*"):
        tampering.rewrite(path, lambda content: content["mnb"]["launch"]["arguments"].update(prompt=9))
    (curve,) = make_report(folder).rate_curves
    assert [point.at for point in curve.points] == [1, 8]
    assert "curve-concurrency" not in {chart.key for chart in report_page(make_report(folder)).charts}


def test_every_form_has_them(folder: Path) -> None:
    _, found, rest = printed(folder, "table").partition("serve by concurrency\n")
    assert found
    rows = [line.split() for line in rest.splitlines()]
    assert any(row[:2] == ["64", "serve_64"] and row[-4:] == ["0.9935", "0.9935", "10.08", "10.08"] for row in rows)
    assert "latency per item" in printed(folder, "markdown")
    tests = {test["test"]: test for test in json.loads(printed(folder, "json"))["tests"]}
    assert tests["quick.serve_1"]["item_latency"]["TTFT"]["batches"] == 18
    assert tests["quick.vae"]["item_latency"] == {}


def test_the_page_draws_the_curve(folder: Path) -> None:
    """Each point is where its rates are, and says its concurrency."""
    page = report_page(make_report(folder))
    (chart,) = (chart for chart in page.charts if chart.key == "curve-concurrency")
    (panel,) = chart.views[0].panels
    labels = {part.text: part.at for part in panel.parts if hasattr(part, "text")}
    assert labels["64"] == pytest.approx((50.0, 3200.0), rel=0.01)
    assert {*labels} == {"1", "8", "64"}
    assert panel.x.title == UNIT
    assert "serve, concurrency 64:" in text_of(write, make_report(folder))
    assert "item-latency" in [table.key for table in page.folded]


def test_a_run_without_curves_is_told_nothing_of_them(tmp_path: Path) -> None:
    make_records.write_run(tmp_path / "run", make_records.plan("quick", {"vae": PER_GPU}, 1, 1), slices=40)
    assert make_report(tmp_path / "run").rate_curves == ()
    assert "latency per item" not in printed(tmp_path / "run", "table")

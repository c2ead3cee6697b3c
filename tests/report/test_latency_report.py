"""Latencies of inference: from the slices of all launches to every form of the report."""

from __future__ import annotations

import csv
import io
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
from milabench_ng.present.html.as_html import report_page
from milabench_ng.present.writers import Form, write_report
from milabench_ng.report.reporting import make_report

P50_MS = 1.02**348.5 / 1e3
P99_MS = 1.02**465.5 / 1e3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two devices, 40 slices of 5 batches, of which the window holds 18: 5 of 1 ms, on device 1 one of them 10 ms."""
    whole = make_records.plan("quick", {"vae": PER_GPU, "convnet": PER_GPU}, 2, 1)
    make_records.write_run(tmp_path / "run", whole, lambda *_: 100.0, slices=40)
    note(tmp_path / "run", "quick.vae.J0.0.*", [[348, 5]])
    note(tmp_path / "run", "quick.vae.J0.1.*", [[348, 4], [465, 1]])
    return tmp_path / "run"


def note(folder: Path, pattern: str, latency: list[list[int]]) -> None:
    """These latencies in all slices of the window, much longer ones in those around it."""

    def change(content: dict[str, Any]) -> None:
        window = content["mnb"]["window"]
        for row in content["mnb"]["ranks"][0]["slices"]:
            inside = window["start_s"] <= row[0] and row[0] + row[1] <= window["end_s"]
            row += [None, latency if inside else [[1000, 5]]]

    for path in folder.glob(pattern):
        tampering.rewrite(path, change)


def printed(folder: Path, form: Form) -> str:
    return text_of(write_report, make_report(folder), form, full=True)


def test_the_summary_merges_the_windows_of_all_launches(folder: Path) -> None:
    """180 batches: the 90th is of 1 ms, the 179th one of the 18 of 10 ms."""
    found = load(folder).tests["quick.vae"].latency
    assert found == Latency(batches=180, p50_ms=pytest.approx(P50_MS), p99_ms=pytest.approx(P99_MS))
    assert load(folder).tests["quick.convnet"].latency is None


def test_a_failed_launch_does_not_count(folder: Path) -> None:
    for path in folder.glob("quick.vae.J0.1.*"):
        tampering.rewrite(path, lambda content: content.update(success=False))
    found = load(folder).tests["quick.vae"].latency
    assert found == Latency(batches=90, p50_ms=pytest.approx(P50_MS), p99_ms=pytest.approx(P50_MS))


def test_every_form_has_them(folder: Path) -> None:
    _, found, rest = printed(folder, "table").partition("latency per batch\n")
    assert found
    assert ["vae", "180", "0.9935", "10.08"] in [line.split() for line in rest.splitlines()]
    vae, convnet = csv.DictReader(io.StringIO(printed(folder, "csv")))
    assert float(vae["latency p50 (ms)"]) == pytest.approx(P50_MS)
    assert float(vae["latency p99 (ms)"]) == pytest.approx(P99_MS)
    assert convnet["latency p50 (ms)"] == ""
    tests = json.loads(printed(folder, "json"))["tests"]
    assert tests[0]["latency"] == {
        "batches": 180,
        "p50_ms": pytest.approx(P50_MS),
        "p99_ms": pytest.approx(P99_MS),
    }
    assert tests[1]["latency"] is None
    assert "latency per batch" in printed(folder, "markdown")
    assert "latency" in [table.key for table in report_page(make_report(folder)).folded]


def test_a_stored_summary_keeps_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text(encode_summary(load(folder)))
    assert load_baseline(str(tmp_path / "base.json")).tests == load(folder).tests


def test_training_has_none(tmp_path: Path) -> None:
    make_records.write_run(tmp_path / "run", make_records.plan("quick", {"vae": PER_GPU}, 1, 1), slices=40)
    assert "latency" not in printed(tmp_path / "run", "table")
    assert "latency" not in printed(tmp_path / "run", "csv")

"""Results of the vision models in the columns of the benchmark that published them."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from printing import text_of
from rows import row_of

from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.analysis.summary.summary import Stat, StepTally, TestSummary
from milabench_ng.cli import call
from milabench_ng.model.catalogue import Derived
from milabench_ng.present.writers import Form, write_layout
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import build_report

HEAD = [
    *("Datetime", "GPU", "cuDNN version", "N GPUs", "Data Loader workers", "Model", "Precision", "Minibatch"),
    *("Input width [px]", "Input height [px]", "Warmup steps", "Benchmark steps", "MPx/s", "images/s", "batches/s"),
    *("Test", "Failed launches"),
]
NATIVE = (Derived("MPx/s", "rate * width * height / 1e6"), Derived("batches/s", "rate / batch_size"))


def row(precision: str, rate: float, **options: Any) -> TestSummary:
    """A test on four devices, 1,000 x 500 pixels."""
    given = {"arch": "resnet50", "batch_size": 10, "width": 1000, "height": 500, "source": "resident", "workers": 8}
    return row_of(
        n=1,
        failures=0,
        train=Stat.of([rate]),
        unit="images",
        classic_factor=1.0,
        derived=NATIVE,
        options=given | options,
        precision=(precision,),
        devices=4,
        launches={"0.0": rate},
        steps=StepTally(before=20, measured=90),
        started_utc=datetime(2026, 1, 6, 16, 5, 9, tzinfo=UTC),
    )


def report_on(**rows: TestSummary) -> Report:
    whole = load_baseline("v100")
    provenance = msgspec.structs.replace(whole.provenance, software={"cudnn": "9.10.2"})
    tests = {f"cv.{name}": each for name, each in rows.items()}
    summary = msgspec.structs.replace(
        whole, suite="cv", devices=4, models=dict.fromkeys("0123", "H200"), provenance=provenance, tests=tests
    )
    return build_report(summary, "results")


def written(report: Report, form: Form) -> str:
    return text_of(write_layout, report, "cv", form)


def test_each_test_is_a_row_with_the_sums_over_the_devices() -> None:
    report = report_on(
        train=row("amp", 100.0, learning_rate=2e-5, source="memory"),
        infer=row("half", 300.0, arch="vgg16"),
    )
    head, *found = csv.reader(written(report, "csv").splitlines())
    assert head == HEAD
    assert found == [
        [
            *("2026-01-06 16:05:09", "H200", "9.10.2", "4", "8", "resnet50", "amp", "10", "1000", "500", "20", "90"),
            *("200.00", "400.00", "40.00", "cv.train", "0"),  # 4 x 100 images of half a megapixel, in batches of 10
        ],
        [
            *("2026-01-06 16:05:09", "H200", "9.10.2", "4", "0", "vgg16", "half", "10", "1000", "500", "20", "90"),
            *("600.00", "1200.00", "120.00", "cv.infer", "0"),
        ],
    ]


def test_markdown_has_a_table_for_training_and_one_for_inference() -> None:
    report = report_on(train=row("amp", 100.0, learning_rate=2e-5), infer=row("half", 300.0))
    text = written(report, "markdown")
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## training", "## inference"]
    assert "isolation: " in text


def test_a_result_without_dates_and_steps_shows_none() -> None:
    plain = msgspec.structs.replace(row("amp", 100.0), steps=None, started_utc=None)
    found = list(csv.reader(written(report_on(infer=plain), "csv").splitlines()))[1]
    assert (found[0], *found[10:12]) == ("-", "-", "-")


def test_a_layout_shows_no_score_and_fails_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    bundle = str(Path(__file__).parents[2] / "baselines" / "bundles" / "cv-1xH200-20261122.tar.gz")
    assert call(["report", bundle]) == 1
    assert "NO SCORE" in capsys.readouterr().out
    assert call(["report", bundle, "--layout", "cv"]) == 0

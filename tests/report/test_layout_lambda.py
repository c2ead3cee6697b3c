"""Results of NVIDIA's examples in the columns of Lambda's benchmark, and the figures that it published."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from printing import text_of
from rows import row_of

from milabench_ng.analysis.summary.folder import encode_summary, load_baseline
from milabench_ng.analysis.summary.summary import Stat, Summary, TestSummary
from milabench_ng.cli import call
from milabench_ng.present.layouts.nvidia_examples import systems
from milabench_ng.present.writers import Form, write_layout
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import AS_USUAL, ReportOptions, build_report, make_report

BUNDLE = Path(__file__).parents[2] / "baselines" / "bundles" / "lambda-1xH200-20261126.tar.gz"
TASKS = [
    *("ssd", "bert_base_squad", "bert_large_squad", "gnmt", "ncf", "resnet50", "tacotron2", "transformerxlbase"),
    *("transformerxllarge", "waveglow", "maskrcnn"),
]
HEAD = ["name_gpu", "num_gpu", "price", "precision", "figure", *TASKS]


def row(precision: str, rate: float, **changes: Any) -> TestSummary:
    """A test on four devices of 500 W."""
    return row_of(
        n=1,
        failures=0,
        train=Stat.of([rate]),
        unit="tokens",
        classic_factor=1.0,
        options={"batch_size": 80, "layers": 4} | changes,
        precision=(precision,),
        devices=4,
        launches={"0.0": rate},
        power_w=500.0,
    )


def summary_of(**rows: TestSummary) -> Summary:
    whole = load_baseline("lambda-v100")
    tests = {f"lambda.{name}": each for name, each in rows.items()}
    return msgspec.structs.replace(whole, devices=4, models=dict.fromkeys("0123", "H200"), tests=tests)


def report_on(run: Summary, other: Summary | None = None, options: ReportOptions = AS_USUAL) -> Report:
    baselines = [("older", other)] if other else []
    return build_report(run, "results", baselines=baselines, options=options)


def written(report: Report, form: Form) -> str:
    return text_of(write_layout, report, "lambda", form)


def figures(report: Report, precision: str, task: str) -> dict[str, str]:
    """The figures of one test in the CSV."""
    head, *rows = csv.reader(written(report, "csv").splitlines())
    assert head[: len(HEAD)] == HEAD
    return {each[4]: each[head.index(task)] for each in rows if each[3] == precision}


def test_figures_of_a_gpu_and_of_the_node() -> None:
    """1,000 tokens a second on each of four GPUs: 2 a watt; 4,000 for 8,000 dollars."""
    run = summary_of(gnmt_amp=row("amp", 1000.0), txl_base_tf32=row("tf32", 300.0))
    report = report_on(
        run, summary_of(gnmt_amp=row("amp", 250.0, batch_size=20)), options=ReportOptions(price=2000.0, price_per="gpu")
    )
    assert figures(report, "amp", "gnmt") == {
        "unit": "tokens",
        "batch per GPU": "80",
        "throughput per GPU": "1000.0",
        "throughput": "4000.0",
        "relative to older": "4.0",
        "watt per GPU": "500.0",
        "throughput per watt": "2.0",
        "throughput per dollar": "0.5",
    }
    assert set(figures(report, "amp", "transformerxlbase").values()) == {""}
    assert figures(report, "tf32", "transformerxlbase")["throughput per GPU"] == "300.0"
    assert figures(report, "tf32", "transformerxlbase")["relative to older"] == ""
    rows = [each[:5] for each in csv.reader(written(report, "csv").splitlines())]
    assert rows[1] == ["H200", "4", "8000.0", "amp", "unit"]


def test_without_price_and_power_nothing_is_made_up() -> None:
    plain = msgspec.structs.replace(row("amp", 1000.0), power_w=None)
    found = figures(report_on(summary_of(gnmt_amp=plain)), "amp", "gnmt")
    assert "throughput per dollar" not in found
    assert (found["watt per GPU"], found["throughput per watt"]) == ("", "")


def test_other_work_than_the_batch_is_not_compared() -> None:
    run = summary_of(gnmt_amp=row("amp", 1000.0, layers=2))
    report = report_on(run, summary_of(gnmt_amp=row("amp", 250.0)))
    assert figures(report, "amp", "gnmt")["relative to older"] == ""


def test_markdown_has_a_table_for_each_precision() -> None:
    run = summary_of(gnmt_fp32=row("fp32", 10.0), gnmt_amp=row("amp", 1000.0), ncf_amp=row("amp", 5.0))
    text = written(report_on(run), "markdown")
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## fp32", "## amp"]
    assert r"| lambda.ncf\_amp | tokens | 80 | 5 | 20 | 500.00 | 0.01 |" in text
    assert "isolation: " in text


@pytest.mark.parametrize(
    ("gpu", "precision", "published"),
    [
        ("v100", "fp32", {"gnmt": "22744", "ncf": "9.8e6", "transformerxlbase": "6518", "bert_large_squad": "12.36"}),
        ("v100", "half_master", {"gnmt": "81626", "transformerxllarge": "4372", "bert_base_squad": "148.7"}),
        ("a100", "tf32", {"gnmt": "129911", "transformerxlbase": "30462", "bert_base_squad": "239.8"}),
        ("h100", "half_master", {"gnmt": "477117", "transformerxllarge": "30841", "bert_large_squad": "310.3"}),
        ("h200", "half_master", {"gnmt": "569819", "bert_base_squad": "930.5", "transformerxlbase": ""}),
        ("b200", "tf32", {"gnmt": "433179", "bert_large_squad": "281.9", "ncf": ""}),
    ],
)
def test_the_published_figures(gpu: str, precision: str, published: dict[str, str]) -> None:
    """Those of the suite's own tables."""
    report = report_on(load_baseline(f"lambda-{gpu}"))
    for task, said in published.items():
        found = figures(report, precision, task)["throughput per GPU"]
        assert found == said if not said else float(found) == pytest.approx(float(said), rel=0.005), task


def test_what_ran_decides_and_what_was_not_as_stated_is_left_out() -> None:
    """From Ampere on FP32 was TF32; from 80 GB on NCF's FP16 ran without autocast."""
    known = {gpu: load_baseline(f"lambda-{gpu}").tests for gpu in ("v100", "a100", "h100")}
    assert "lambda.gnmt_fp32" in known["v100"]
    assert "lambda.ncf_amp" in known["v100"]
    for gpu in ("a100", "h100"):
        assert not [label for label in known[gpu] if label.endswith("_fp32")]
        assert "lambda.ncf_amp" not in known[gpu]
    caveats = {label: row.origin.caveat for label, row in known["h100"].items() if row.origin}
    assert caveats["lambda.ncf_tf32"].endswith("batch 8000000; dropped tail corrected; 12 batches/epoch")
    assert caveats["lambda.gnmt_half_master"].startswith("the median of 45 systems, 465138.333 to 487273.0; batch 1520")
    assert known["v100"]["lambda.bert_large_squad_half_master"].work.options["batch_size"] == 24


def test_weights_with_masters_and_jobs_over_all_gpus_have_rows_of_their_own() -> None:
    """What reads a dataset through loaders has a column behind the original's."""
    run = summary_of(
        gnmt_half_master=row("half_master", 1000.0),
        gnmt_half_master_ddp=row("half_master", 900.0),
        ssd_amp_loader=row("amp", 1000 / 3),
    )
    report = report_on(run)
    assert figures(report, "half_master", "gnmt")["throughput per GPU"] == "1000.0"
    assert figures(report, "half_master in one job", "gnmt")["throughput"] == "3600.0"
    assert set(figures(report, "amp", "ssd").values()) == {""}
    assert figures(report, "amp", "ssd_loader")["throughput per GPU"] == str(1000 / 3)


def test_a_table_of_many_systems() -> None:
    """A row for each system and precision; watts of all GPUs, in the mean over the tasks that ran in it."""
    warm = msgspec.structs.replace(row("amp", 1000.0), power_w=600.0)
    small = msgspec.structs.replace(summary_of(ssd_tf32=row("tf32", 10.0)), devices=1)
    table = systems(
        {
            "acme": report_on(
                summary_of(ssd_amp=row("amp", 1000.0), txl_base_amp=warm, ssd_tf32=row("tf32", 400.0)),
                options=ReportOptions(price=8000.0),
            ),
            "globex": report_on(small),
        }
    )
    head = [heading.name for heading in table.headings]
    assert head == ["system", "name_gpu", "num_gpu", "watt", "price", "precision", *TASKS]
    found = [{name: cell for name, cell in zip(head, cells, strict=True) if cell is not None} for cells in table.rows]
    acme = {"system": "acme", "name_gpu": "H200", "num_gpu": 4, "price": 8000.0}
    assert found == [
        acme | {"watt": 4 * 550.0, "precision": "amp", "ssd": 4000.0, "transformerxlbase": 4000.0},
        acme | {"watt": 4 * 500.0, "precision": "tf32", "ssd": 1600.0},
        {"system": "globex", "name_gpu": "H200", "num_gpu": 1, "watt": 500.0, "precision": "tf32", "ssd": 40.0},
    ]


def test_bids_are_such_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rate in (("acme", 1000.0), ("globex", 500.0)):
        (tmp_path / f"{name}.json").write_text(encode_summary(summary_of(ssd_amp=row("amp", rate))))
    offers = {name: {"results": f"{name}.json", "price": price} for name, price in (("acme", 8e3), ("globex", 5e3))}
    (tmp_path / "bids.json").write_text(json.dumps({"reference": "acme.json", "bids": offers}))
    assert call(["bids", str(tmp_path / "bids.json"), "--layout", "lambda", "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(each["system"], each["price"], each["ssd"]) for each in rows] == [
        ("acme", "8000.0", "4000.0"),
        ("globex", "5000.0", "2000.0"),
    ]
    assert call(["bids", str(tmp_path / "bids.json"), "--layout", "lambda", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["systems"][1]["watt"] == 2000.0


def test_what_a_device_did_beside_the_steps_makes_another_ratio() -> None:
    """SSD of the published systems makes its pictures there: an H200 here was 1.37 and 1.98 times as fast."""
    (other,) = make_report(BUNDLE, compare_to=["lambda-h200"]).comparisons
    assert {"lambda.ssd_tf32", "lambda.ssd_amp"} <= set(other.left_out)
    assert other.ratio == pytest.approx(1.038, abs=5e-4)

"""A rate in the units that its workload derives from it: from the record to every form of the report."""

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

from milabench_ng.analysis.baselines.peaks import peaks_in_formulas
from milabench_ng.analysis.summary.folder import encode_summary, load, load_baseline
from milabench_ng.model.catalogue import Derived
from milabench_ng.present.html.as_html import report_page
from milabench_ng.present.html.figures import Curve
from milabench_ng.present.writers import Form, write_report, write_tables
from milabench_ng.report.reporting import make_report

UNITS = [["batches/s", "rate / batch_size"], ["ms/step", "1000 * batch_size / rate"]]
"""At 128 items/s in batches of 64: 2 batches/s, and 500 ms a step."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tests on two devices, of which vae has derived units."""
    whole = make_records.plan("quick", {"vae": PER_GPU, "convnet": PER_GPU}, 2, 1)
    make_records.write_run(tmp_path / "run", whole, lambda *_: 128.0, slices=40)
    derive(tmp_path / "run", UNITS)
    return tmp_path / "run"


def derive(folder: Path, units: list[list[str]], pattern: str = "quick.vae.*") -> None:
    derived = [dict(zip(("unit", "formula"), each, strict=True)) for each in units]
    for path in folder.glob(pattern):
        tampering.rewrite(path, lambda content: content["mnb"].update(derived=derived))


def printed(folder: Path, form: Form, *, full: bool = False) -> str:
    return text_of(write_report, make_report(folder), form, full=full)


def test_the_terminal_has_a_table_in_the_units_of_the_suite(folder: Path) -> None:
    _, found, rest = printed(folder, "table", full=True).partition("rates in the suite's own units\n")
    assert found
    rows = [line.split(maxsplit=3) for line in rest.partition("\n\n")[0].splitlines()]
    assert [row[0] for row in rows if row].count("convnet") == 0
    assert ["vae", "batches/s", "2", "rate / batch_size"] in [[cell.strip() for cell in row] for row in rows]
    assert ["vae", "ms/step", "500.00", "1000 * batch_size / rate"] in [[cell.strip() for cell in row] for row in rows]


def test_a_table_that_only_explains_is_named_and_printed_on_demand(folder: Path) -> None:
    assert "rates in the suite's own units\n" not in printed(folder, "table")
    assert "also prints rates in the suite's own units" in printed(folder, "table")
    assert "also prints" not in printed(folder, "table", full=True)
    assert "formula (rate: items/s)" in printed(folder, "markdown")


def test_all_files_of_tables_name_tests_alike(folder: Path, tmp_path: Path) -> None:
    write_tables(make_report(folder), tmp_path / "tables")
    with (tmp_path / "tables" / "suite-units.csv").open() as stream:
        units = list(csv.DictReader(stream))
    assert [row["test"] for row in units] == ["quick.vae"] * len(UNITS)
    assert units[0]["formula (rate: items/s)"] == UNITS[0][1]


def test_a_formula_knows_the_devices_and_the_mean_of_a_note_per_step(folder: Path, tmp_path: Path) -> None:
    """Slices of two steps that took 0.5 s together: 0.25 s a step; the tests run on two devices."""
    derive(folder, [["MB/s", "batch_size / save_s"], ["x", "devices"]])
    for path in folder.glob("quick.vae.*"):
        tampering.rewrite(path, note)
    (tmp_path / "base.json").write_text(encode_summary(load(folder)))
    row = load_baseline(str(tmp_path / "base.json")).tests["quick.vae"]
    assert row.notes == {"save_s": 0.25}
    vae, _ = json.loads(printed(folder, "json"))["tests"]
    assert [each["value"] for each in vae["derived"]] == [256.0, 2.0]


def note(content: dict[str, Any]) -> None:
    for rank in content["mnb"]["ranks"]:
        rank["slices"] = [
            [*row[:3], 2, *row[4:], *(None, [])[len(row) - 5 :], {"save_s": 0.5}] for row in rank["slices"]
        ]


def test_a_note_replaces_no_option_no_devices_and_no_peak(folder: Path) -> None:
    derive(folder, [["a", "batch_size"], ["b", "devices"], ["c", "peak_tflops"]])
    for path in folder.glob("quick.vae.*"):
        tampering.rewrite(path, forged_notes)
    vae, _ = json.loads(printed(folder, "json"))["tests"]
    assert [each["value"] for each in vae["derived"]] == [64.0, 2.0, None]


def forged_notes(content: dict[str, Any]) -> None:
    note(content)
    for row in content["mnb"]["ranks"][0]["slices"]:
        row[-1] = {"batch_size": 2.0, "devices": 16.0, "peak_tflops": 2.0}


def test_csv_has_a_column_for_each(folder: Path) -> None:
    vae, convnet = list(csv.DictReader(io.StringIO(printed(folder, "csv"))))
    assert (vae["perf (batches/s)"], vae["perf (ms/step)"]) == ("2.0", "500.0")
    assert (convnet["perf (batches/s)"], convnet["perf (ms/step)"]) == ("", "")


def test_json_has_value_and_formula(folder: Path) -> None:
    vae, convnet = json.loads(printed(folder, "json"))["tests"]
    values = [2.0, 500.0]
    assert vae["derived"] == [
        {"unit": unit, "formula": formula, "value": value} for (unit, formula), value in zip(UNITS, values, strict=True)
    ]
    assert convnet["derived"] == []


def test_a_stored_summary_keeps_them(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text(encode_summary(load(folder)))
    again = load_baseline(str(tmp_path / "base.json"))
    assert [(each.unit, each.formula) for each in again.tests["quick.vae"].work.derived] == [
        tuple(each) for each in UNITS
    ]


def test_without_any_nothing_is_shown(folder: Path) -> None:
    derive(folder, [])
    assert "the suite's own units" not in printed(folder, "table")
    assert (
        printed(folder, "csv").partition("\n")[0].endswith("bound by,measured bottleneck,flags,isolation,score status")
    )


@pytest.mark.parametrize("formula", ["rate / (batch_size - 64)", "rate * depth", "rate ** 2", "(" * 10_000])
def test_a_formula_without_a_value_costs_nothing_else(folder: Path, formula: str) -> None:
    derive(folder, [["x", formula]])
    vae, _ = json.loads(printed(folder, "json"))["tests"]
    assert (vae["perf"], vae["derived"]) == (128.0, [{"unit": "x", "formula": formula, "value": None}])
    assert "the suite's own units" in printed(folder, "table")


def test_a_failed_test_has_no_value(folder: Path) -> None:
    for path in folder.glob("quick.vae.*"):
        tampering.rewrite(path, lambda content: content.update(success=False))
    vae, _ = json.loads(printed(folder, "json"))["tests"]
    assert [each["value"] for each in vae["derived"]] == [None, None]


def test_formulas_know_the_peaks_of_devices_of_one_known_model() -> None:
    known = {"peak_tflops": 989.4, "peak_gb_per_s": 4800.0, "peak_fp8_tflops": 1979.0}
    assert peaks_in_formulas(["NVIDIA H200", "NVIDIA H200"]) == known
    assert Derived("MFU %", "rate * 5 / peak_tflops").of(989.4, {}, known) == 5.0
    assert "peak_fp8_tflops" not in peaks_in_formulas(["NVIDIA A100-SXM4-80GB"])
    for models in (["NVIDIA H200", "NVIDIA A100-SXM4-80GB"], ["a chip"], []):
        assert peaks_in_formulas(models) == {}


def test_a_sweep_is_a_table_and_a_line_in_a_chart_for_each_unit(folder: Path) -> None:
    """Places without a value are left out; the units of a whole step stay what they were."""
    swept = [
        {"unit": unit, "formula": formula.format(at), "curve_over": "bytes", "curve_at": at}
        for at in (2048, 8, 1 << 33)
        for unit, formula in (("GB/s", "rate * {0}"), ("us", "rate / b" if at == 8 else "rate / {0}"))
    ]
    for path in folder.glob("quick.vae.*"):
        tampering.rewrite(path, lambda content: content["mnb"].update(derived=swept))
    report = make_report(folder)
    (sweep,) = report.lines[0].sweeps
    assert (sweep.over, sweep.units, report.lines[0].derived) == ("bytes", ("GB/s", "us"), ())
    assert [point.at for point in sweep.points] == [8, 2048, 1 << 33]
    assert sweep.points[0].values == {"GB/s": 1024.0}
    _, _, rest = printed(folder, "table", full=True).partition("vae by bytes\n")
    rows = [line.split() for line in rest.splitlines()]
    assert ["2", "KiB", "262,144", "0.0625"] in rows
    assert ["8", "B", "1,024.00", "-"] in rows
    (told,) = json.loads(printed(folder, "json"))["tests"][0]["sweeps"]
    assert told["points"][1] == {"at": 2048, "values": {"GB/s": 262144.0, "us": 0.0625}}
    charts = {chart.key: chart for chart in report_page(report).charts}
    (panel,) = charts["sweep-bytes-GB/s"].views[0].panels
    (line,) = (part for part in panel.parts if isinstance(part, Curve))
    assert line.points == tuple((at, 128.0 * at) for at in (8, 2048, 1 << 33))
    assert (panel.x.log, panel.y.log) == (True, True)
    assert [tick.text for tick in panel.x.ticks] == ["8 B", "2 KiB", "8 GiB"]
    assert len(charts["sweep-bytes-us"].views[0].panels[0].parts) == 3

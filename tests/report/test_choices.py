"""What a user chose that changes what a number means: it is told wherever the number is."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_node import inventory
from make_records import PER_GPU
from printing import text_of
from tampering import changing

from milabench_ng.analysis.summary.folder import load
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli import call
from milabench_ng.model.plan import Plan
from milabench_ng.model.shipped import find
from milabench_ng.present.html import as_html
from milabench_ng.present.render.as_json import as_object
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.next_step import next_step
from milabench_ng.present.render.statements import details
from milabench_ng.present.writers import Form, write_report
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, make_report

TESTS = dict.fromkeys(("toy_reg", "toy_lstm", "vae", "loader", "convnet"), PER_GPU)
FORMS = ("table", "markdown", "csv", "json")


def planned(devices: int = 2, **more: Any) -> Plan:
    return make_records.plan("quick", TESTS, devices, 6, **more)


def made_of(folder: Path, whole: Plan, **manifest: Any) -> Path:
    """A whole run whose manifest says ``manifest`` too."""
    make_records.write_run(folder, whole, slices=24)
    path = folder / "run.json"
    path.write_bytes(msgspec.json.encode(json.loads(path.read_bytes()) | manifest))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the shipped profile, as its hash says."""
    file = find("profiles", "quick")
    profile = {"file": "quick.json", "sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "text": file.read_text()}
    return made_of(tmp_path_factory.mktemp("runs") / "run", planned(), profile=profile)


def facts(report: Report) -> dict[str, str]:
    return {fact.name: fact.text for fact in (*first_screen(report).facts, *details(report))}


def printed(report: Report, form: Form) -> str:
    return text_of(write_report, report, form, full=True).replace("\\_", "_")


def weights(path: Path, *tests: str) -> Path:
    path.write_text(json.dumps({f"quick.{test}": {"weight": 8} for test in tests}))
    return path


def test_nothing_is_told_where_all_is_as_shipped(run: Path) -> None:
    report = make_report(run, compare_to=[str(run)])
    assert not {"profile", "order", "weights"} & facts(report).keys()
    assert "devices" not in facts(report)
    assert facts(report)["Node"].startswith("2 x Test GPU")
    assert "margin 2%" not in printed(report, "table")
    assert as_object(report)["choices"] == {
        "weights": None,
        "without_weight": (),
        "profiles": (),
        "orders": (),
        "node_devices": 2,
    }
    shipped = find("weights", "quick")
    assert "weights" not in facts(make_report(run, weights=shipped))


def test_weights_that_are_not_shipped_are_named_with_the_tests_that_they_leave_out(run: Path, tmp_path: Path) -> None:
    file = weights(tmp_path / "mine.json", "vae", "toy_reg", "toy_lstm")
    report = make_report(run, weights=file)
    assert report.score.status == "complete"
    told = (
        f"from {file} instead of the shipped weights of quick; without a weight, so not in the score: loader, convnet"
    )
    assert facts(report)["weights"] == told
    assert told in printed(report, "table")
    chosen = json.loads(printed(report, "json"))["choices"]
    assert (chosen["weights"], chosen["without_weight"]) == (str(file), ["quick.loader", "quick.convnet"])


@pytest.mark.parametrize("form", FORMS)
def test_an_unusual_margin_stands_beside_every_verdict(run: Path, form: Any) -> None:
    report = make_report(run, compare_to=[str(run)], options=ReportOptions(margin=0.0001))
    text = printed(report, form)
    if form == "json":
        (baseline,) = json.loads(text)["baselines"]
        assert baseline["margin"] == 0.0001
    elif form == "csv":
        (head, *rows) = csv.reader(io.StringIO(text))
        assert "verdict (margin 0.01%)" in head
        assert {float(row[head.index("margin (%)")]) for row in rows} == {0.01}
    else:
        lines = [line for line in text.splitlines() if "verdict" in line or "ratio to" in line]
        assert len(lines) >= 2
        told = text.replace("--margin 0.01%", "")  # an option of the command for the details
        # The first screen, the ratio, the table of the tests, what decided the ratio.
        assert told.count("margin 0.01%") == 4
    usual = make_report(run, compare_to=[str(run)])
    if form == "csv":
        (head, *rows) = csv.reader(io.StringIO(printed(usual, form)))
        assert "verdict" in head
        assert {float(row[head.index("margin (%)")]) for row in rows} == {2.0}


def test_the_page_has_the_margin_too(run: Path) -> None:
    report = make_report(run, compare_to=[str(run)], options=ReportOptions(margin=0.5))
    assert "margin 50%" in text_of(as_html.write, report)


def test_gpus_that_were_left_idle_are_counted(tmp_path: Path) -> None:
    whole = msgspec.to_builtins(inventory(planned(8).devices))
    report = make_report(made_of(tmp_path / "one", planned(1), inventory=whole))
    assert "devices" not in facts(report)
    assert facts(report)["NOT COMPARABLE"].startswith("only 1 of the node's 8 devices were used")
    assert as_object(report)["choices"]["node_devices"] == 8


def test_the_cores_of_a_node_with_gpus_are_no_part_of_its_gpus(tmp_path: Path) -> None:
    few = planned(1)
    cores = msgspec.structs.replace(
        few, devices=tuple(msgspec.structs.replace(at, kind="cpu", uuid=None) for at in few.devices)
    )
    whole = msgspec.to_builtins(inventory(planned(8).devices))
    folder = made_of(tmp_path / "cpu", few, inventory=whole, plan=msgspec.to_builtins(cores))
    assert load(folder).node_devices is None


def test_an_edited_profile_of_a_shipped_name_is_told(tmp_path: Path) -> None:
    folder = made_of(tmp_path / "run", planned())
    sha256 = json.loads((folder / "run.json").read_bytes())["profile"]["sha256"]
    report = make_report(folder)
    assert facts(report)["profile"] == f"that of this run (SHA-256 {sha256[:12]}) differs from the shipped quick"
    assert as_object(report)["choices"]["profiles"] == (sha256,)


def test_a_record_that_was_run_again_is_compared_with_the_run_it_is_of(tmp_path: Path) -> None:
    folder = made_of(tmp_path / "run", planned())
    assert ": mnb jobs standard " in next_step(make_report(folder))
    with changing(folder / "run.json") as manifest:
        manifest["profile"]["file"] = "my results/quick.vae.J0.0.20260106-160000-123456.json"
    assert next_step(make_report(folder)).endswith(f": mnb report {folder} --compare 'my results'")


def test_the_profile_of_a_suite_that_is_not_shipped_is_its_own(tmp_path: Path) -> None:
    folder = made_of(tmp_path / "run", make_records.plan("ours", TESTS, 2, 1))
    assert "profile" not in facts(make_report(folder))


def test_order_and_nonce_are_told(tmp_path: Path) -> None:
    report = make_report(made_of(tmp_path / "run", planned(nonce="dice 4711")))
    assert facts(report)["order"] == "random, nonce dice 4711"
    assert as_object(report)["choices"]["orders"] == ("random, nonce dice 4711",)


def test_older_summaries_read_as_if_nothing_was_chosen(run: Path) -> None:
    stored = msgspec.to_builtins(load(run))
    for key in ("node_devices", "orders"):
        del stored[key]
    read = msgspec.convert(stored, Summary)
    assert (read.node_devices, read.orders) == (None, ())


def test_csv_leaves_what_was_chosen_to_the_error_output(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(["report", str(run), "--format", "csv", "--no-penalize-variance"])
    told = capsys.readouterr()
    assert "mnb: NOT COMPARABLE: dataset scale 1 instead of 0.02" in told.err
    assert "mnb: variance: no penalty applied (--no-penalize-variance)\n" in told.err
    assert told.out.startswith("test,unit,weight,")
    assert "penalised" not in told.out


def test_a_score_that_bids_are_ranked_by_takes_isolation_first(tmp_path: Path) -> None:
    """Also where the run had all of the isolation that it asked for."""
    folder = made_of(tmp_path / "run", planned())
    for file in (folder / "run.json", *folder.glob("quick.*.json")):
        text = file.read_text().replace('"tier": "full"', '"tier": "affinity"').replace('"auto"', '"affinity"')
        file.write_text(text)
    report = make_report(folder)
    assert report.isolation == "affinity"
    assert next_step(report).endswith(": mnb doctor")

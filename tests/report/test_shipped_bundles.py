"""The bundles that come with the project: what a document rests on can be checked by anybody."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from pathlib import Path

import pytest

from milabench_ng.cli import call

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "baselines" / "bundles" / "standard-2xH200-20261122.tar.gz"
PARTIAL = {"R8"}
"""What a run of some tests of a profile breaks."""


def test_the_shipped_bundle_verifies(capsys: pytest.CaptureFixture[str]) -> None:
    call(["verify", str(BUNDLE), "--format", "json"])
    rulings = json.loads(capsys.readouterr().out)["rulings"]
    assert {ruling["id"] for ruling in rulings if ruling["result"] == "fail"} == PARTIAL
    assert sum(ruling["result"] == "pass" for ruling in rulings) >= 10


def test_the_documented_rates_are_those_of_the_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(BUNDLE) as archive:
        archive.extractall(tmp_path, filter="data")
    assert call(["report", str(next(tmp_path.glob("*/run.json")).parent), "--format", "csv"]) == 0
    document = (ROOT / "docs" / "measurements.md").read_text()
    for row in csv.DictReader(io.StringIO(capsys.readouterr().out)):
        rate = float(row["perf (unit/s)"])
        shown = f"{rate:,.0f}" if rate >= 10_000 else f"{rate:,.2f}"
        assert f"| {row['test'].removeprefix('standard.')} | {row['unit']} | {shown} |" in document

"""The bundles that come with the project: what a document rests on can be checked by anybody."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.report.summary.folder import load_baseline

ROOT = Path(__file__).parents[2]
BUNDLES = sorted((ROOT / "baselines" / "bundles").glob("*.tar.gz"))


def suite_of(bundle: Path) -> str:
    """The beginning of its name."""
    return bundle.name.partition("-")[0]


STANDARD = [bundle for bundle in BUNDLES if suite_of(bundle) == "standard"]


def test_there_are_bundles() -> None:
    assert (len(STANDARD), len(BUNDLES)) == (2, 13)


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_a_shipped_bundle_verifies(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(["verify", str(bundle), "--format", "json"])
    rulings = json.loads(capsys.readouterr().out)["rulings"]
    assert {ruling["id"] for ruling in rulings if ruling["result"] == "fail"} == set()
    assert sum(ruling["result"] == "pass" for ruling in rulings) >= 10


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_the_documented_rates_are_those_of_the_bundle(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(bundle) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = next(tmp_path.glob("*/run.json")).parent
    assert call(["report", str(folder), "--format", "csv"]) == 0
    document = (ROOT / "docs" / "measurements.md").read_text()
    measured = [row for row in csv.DictReader(io.StringIO(capsys.readouterr().out)) if row["perf (unit/s)"]]
    assert len(measured) >= 4
    for row in measured:
        rate = float(row["perf (unit/s)"])
        shown = f"{rate:,.0f}" if rate >= 10_000 else f"{rate:,.2f}"
        assert f"| {row['test'].partition('.')[2]} | {row['unit']} | {shown} |" in document


def test_the_shipped_h200_is_built_of_the_bundles() -> None:
    made = load_baseline(str(ROOT / "baselines" / "h200.json"))
    for bundle in STANDARD:
        digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
        assert f"bundle {bundle.name}, SHA-256 {digest}" in made.provenance.notes
        with tarfile.open(bundle) as archive:
            packed = archive.extractfile("bundle.json")
            assert packed is not None
            claimed = json.load(packed)["claim"]["tests"]
        for label, row in claimed.items():
            stored = made.tests[label]
            assert stored.train is not None
            assert (stored.n, stored.train.mean) == (row["n"], pytest.approx(row["perf"], rel=1e-12))

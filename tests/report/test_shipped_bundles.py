"""The bundles that come with the project: what a document rests on can be checked by anybody."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from honest import results_in

from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.cli import call
from milabench_ng.model.units import four_digits
from milabench_ng.report.reporting import make_report

ROOT = Path(__file__).parents[2]
BUNDLES = sorted((ROOT / "baselines" / "bundles").glob("*.tar.gz"))


def suite_of(bundle: Path) -> str:
    """The beginning of its name."""
    return bundle.name.partition("-")[0]


STANDARD = [bundle for bundle in BUNDLES if suite_of(bundle) == "standard" and "-20261122" in bundle.name]
"""Those that `h200` is built of."""
MODERN, MODERN2 = (
    [bundle for bundle in BUNDLES if suite_of(bundle) == suite and "-2xH200-" in bundle.name]
    for suite in ("modern", "modern2")
)

LOCAL = re.compile(rb"(?<![\w.:/~-])/(?:root|home|tmp|work|workspace|mnt|scratch|Users)(?![\w-])[\w./+-]*")
"""A path into a folder that people, jobs or machines of one site have."""
ANYBODYS = re.compile(rb"/root(/\.cache/milabench_ng[\w./-]*)?|/tmp/mnb-scratch-[0-9T]+(-[0-9a-f]+){1,2}(/compiled)?")
"""The home of whoever is root, the usual data root below it, and what mnb names after a run."""
LEDGERS_HOLD_THEM = {
    "cv-1xH200-20261122.tar.gz",
    "modern-1xH200-20261124.tar.gz",
    "standard-2xH200-20261122.tar.gz",
    "standard-rest-2xH200-20261122.tar.gz",
    "unet3d-2xH200-20261122.tar.gz",
}
"""Made before anybody looked: their records name folders below /tmp and /work, and their ledgers hold the sums of
the records, so that a change would break the chain. `h200` states the sums of both bundles of standard."""


def test_there_are_bundles() -> None:
    assert (len(STANDARD), len(MODERN), len(MODERN2), len(BUNDLES)) == (2, 2, 2, 31)


ALARMS = {"host pace", "stall", "foreign CPU load", "prefetched items"}
"""Conditions that are anomalies or warnings under the same name: what docs/reliability.md counts."""


@pytest.mark.parametrize("bundle", BUNDLES, ids=[bundle.name for bundle in BUNDLES])
def test_no_new_condition_is_beyond_its_limit_in_an_honest_run(bundle: Path) -> None:
    """But for steal where nothing isolated the tenants from processes that took all CPUs."""
    rows = make_report(bundle).summary.tests
    beyond = {one.kind for row in rows.values() for one in row.conditions if one.beyond}
    assert beyond - ALARMS <= ({"CPU steal"} if bundle.name.startswith("unfenced-") else set())


def texts(file: Path) -> Iterator[bytes]:
    """What an archive holds, or the file itself."""
    if not file.name.endswith(".tar.gz"):
        yield file.read_bytes()
        return
    with tarfile.open(file) as archive:
        for member in archive:
            packed = archive.extractfile(member)
            assert packed is not None, member.name
            yield packed.read()


@pytest.mark.parametrize("file", [*BUNDLES, *sorted((ROOT / "baselines").rglob("*.json"))], ids=lambda path: path.name)
def test_what_is_shipped_names_no_folder_of_the_machine_that_made_it(file: Path) -> None:
    named = {path for text in texts(file) for path in LOCAL.findall(text)}
    local = {path.decode() for path in named if not ANYBODYS.fullmatch(path)}
    assert bool(local) == (file.name in LEDGERS_HOLD_THEM), sorted(local)[:10]


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_the_documented_rates_are_those_of_the_bundle(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = results_in(bundle, tmp_path)
    own = [f"--weights={file}" for file in tmp_path.glob("weights.json")]  # those shipped may ask for other tests
    assert call(["report", str(folder), "--format", "csv", *own]) == 0
    document = (ROOT / "docs" / "measurements.md").read_text()
    measured = [row for row in csv.DictReader(io.StringIO(capsys.readouterr().out)) if row["perf (unit/s)"]]
    assert measured
    for row in measured:
        rate = float(row["perf (unit/s)"])
        shown = f"{rate:,.0f}" if rate >= 10_000 else f"{rate:,.2f}"
        assert f"| {row['test'].partition('.')[2]} | {row['unit']} | {shown} |" in document


def test_the_documented_scores_of_modern_are_those_of_another_day(tmp_path: Path) -> None:
    """Sub-scores, and score and ratio without each test; the run that is the reference has 1 everywhere."""
    measured = ROOT / "tests" / "data" / "honest" / "modern-2xH200-20261125.tar.gz"
    other = make_report(results_in(measured, tmp_path), compare_to=("modern-h200",))
    document = (ROOT / "docs" / "measurements.md").read_text()
    ratios = {part.name: part.ratio or 0.0 for part in other.comparisons[0].subsets}
    rows = {part.name: (part.weight_pct, part.per_device or 0.0, ratios[part.name]) for part in other.sub_scores[1:]}
    rows["all"] = (100.0, other.score.per_device or 0.0, other.comparisons[0].ratio or 0.0)
    shown = {name: row for name, row in rows.items() if not name.startswith("bound by")}
    assert len(shown) == 1 + 4 + 12
    for name, (share, score, ratio) in shown.items():
        cells = (name.removeprefix("group "), f"{share:.0f}", four_digits(score), f"{ratio:.3f}")
        assert f"| {' | '.join(cells)} |" in document
    reference = make_report(ROOT / "baselines" / "modern-h200.json")
    assert {round(part.per_device or 0.0, 12) for part in reference.sub_scores} == {1.0}


def test_the_shipped_h200_states_the_sums_of_its_bundles() -> None:
    """That of modern cannot: its bundles hold it, as the reference of their weights."""
    made = load_baseline(str(ROOT / "baselines" / "h200.json"))
    for bundle in STANDARD:
        digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
        assert f"bundle {bundle.name}, SHA-256 {digest}" in made.provenance.notes


@pytest.mark.parametrize(("name", "bundles"), [("h200", STANDARD), ("modern-h200", MODERN), ("modern2-h200", MODERN2)])
def test_a_shipped_baseline_is_built_of_its_bundles(name: str, bundles: list[Path]) -> None:
    made = load_baseline(str(ROOT / "baselines" / f"{name}.json"))
    for bundle in bundles:
        with tarfile.open(bundle) as archive:
            packed = archive.extractfile("bundle.json")
            assert packed is not None
            claimed = json.load(packed)["claim"]["tests"]
        for label, row in claimed.items():
            stored = made.tests[label]
            assert (stored.n, stored.train.mean) == (row["n"], pytest.approx(row["perf"], rel=1e-12))

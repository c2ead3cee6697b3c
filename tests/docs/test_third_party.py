"""A workload and a dataset in somebody else's package: installed for real, listed, run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT

from milabench_ng.analysis.summary.comparable import differences
from milabench_ng.analysis.summary.folder import encode_summary, load
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify

PACKAGE = ROOT / "tests" / "docs" / "third_party"
QUICKLY = ("--window", "0.5", "--isolation", "affinity", "--allow-concurrent")


def find_uv() -> str | None:
    """The uv that runs the tests, the one on the PATH, or the one that ``scripts/ensure-uv`` has put here."""
    own = ROOT / ".uv" / "bin" / "uv"
    return os.environ.get("UV") or shutil.which("uv") or (str(own) if own.is_file() else None)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed into."""
    uv = find_uv()
    if uv is None:
        pytest.skip("no uv to install the package with: scripts/test brings one")
    folder = tmp_path_factory.mktemp("third-party")
    source, target = folder / "source", folder / "site"
    shutil.copytree(PACKAGE, source)  # building leaves nothing in the checkout
    command = [uv, "pip", "install", "--no-deps", "--python", sys.executable, "--target", str(target), str(source)]
    subprocess.run(command, check=True)
    return target


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run."""
    return tmp_path_factory.mktemp("work")


def mnb(work: Path, site: Path, *arguments: str) -> str:
    """Run ``mnb`` with the package on its path; what it printed."""
    environ = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "MNB_DATAROOT": str(work / "data")}
    command = [sys.executable, "-m", "milabench_ng", *arguments]
    done = subprocess.run(command, cwd=work, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(table: str) -> dict[str, list[str]]:
    """The words of each line by the first one."""
    return {words[0]: words for words in map(str.split, table.splitlines()) if words}


def test_list_shows_the_package(site: Path, work: Path) -> None:
    listed = rows(mnb(work, site, "list"))
    assert listed["probe"][1:8] == ["vectors", "features", "-", "fp32", "-", "acme-bench", "1.2.0"]
    assert listed["features"][1:3] == ["acme-features", "yes"]


def test_its_record_says_where_the_code_came_from(site: Path, work: Path) -> None:
    mnb(work, site, "run", "probe", "--data-scale", "0.02", "-o", "probe.json", *QUICKLY)
    record = json.loads((work / "probe.json").read_text())
    ours = record["mnb"]
    assert record["success"], ours["failure"]
    assert {**ours["source"], "sha256": ""} == {
        "workload": "probe",
        "origin": "acme_bench.probe:probe",
        "package": "acme-bench 1.2.0",
        "sha256": "",
        "modules": ["acme_bench.probe", "acme_bench.features"],
    }
    assert (ours["unit"], ours["data"]["name"], ours["data"]["kind"]) == ("vectors", "features", "twin")
    assert ours["ranks"][0]["losses"]["10"] < ours["ranks"][0]["losses"]["1"] / 2


@pytest.fixture(scope="module")
def results(site: Path, work: Path) -> Path:
    """The result folder of a run of a profile of the package."""
    mnb(work, site, "jobs", str(PACKAGE / "acme.json"), "-o", "results-acme", "--name", "probe_bf16", *QUICKLY)
    return work / "results-acme"


def change(path: Path, edit: Callable[[Any], object]) -> None:
    """Change a JSON file of a folder."""
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def told(folder: Path) -> str:
    """Why rules are broken."""
    return "\n".join(reason for ruling in verify(folder, Rules()).having("fail") for reason in ruling.reasons)


def twice_the_items(record: Any) -> None:
    """Slices that count each item twice, with steps, losses and times as they were."""
    for row in record["mnb"]["ranks"][0]["slices"]:
        row[2] *= 2


def test_it_is_checked_like_a_built_in_workload(results: Path, tmp_path: Path) -> None:
    """What it declares is in the manifest: a reader needs neither the package nor torch."""
    declared = json.loads((results / "run.json").read_text())["declared"]["acme_bench.probe:probe"]
    assert (declared["data"], declared["most_items"], declared["trains"]) == ("features", "batch_size", True)
    assert declared["pace_only"] == ["pinned"]
    assert [ruling.id for ruling in verify(results, Rules()).having("fail")] == ["R35"]  # its window is short
    for edit, why in (
        (twice_the_items, "counts 512 vectors a step, but its options allow 256"),
        (
            lambda record: record["mnb"].update(unit="numbers"),
            "probe:probe has vectors",
        ),
        (
            lambda record: record["mnb"].update(pace_only=["batch_size"]),
            "its list of options of pace only is batch_size, acme_bench.probe:probe has pinned",
        ),
        (lambda record: record["mnb"]["ranks"][0]["gradient_norms"].pop("2"), "has no gradient norm at step 2"),
        (lambda record: record["mnb"]["precision"].update(dtypes={"bfloat16": 5130}), "parameters are bfloat16"),
        (lambda record: record["mnb"].update(data=None), "acme_bench.probe:probe reads features"),
    ):
        folder = Path(shutil.copytree(results, tmp_path / why[:20]))
        for path in folder.glob("*.J0.*.json"):
            change(path, edit)
        assert why in told(folder)
    folder = Path(shutil.copytree(results, tmp_path / "undeclared"))
    change(folder / "run.json", lambda manifest: manifest.pop("declared"))
    (left_out,) = (ruling for ruling in verify(folder, Rules()).rulings if ruling.id == "R33")
    assert left_out.result == "open"
    assert "does not say what the workload acme_bench.probe:probe declares" in left_out.reasons[0]


@pytest.mark.parametrize(
    ("option", "value", "ratio"), [("pinned", False, "counted"), ("batch_size", 512, "suppressed")]
)
def test_an_option_that_it_declares_of_pace_only_is_no_other_work(
    results: Path, tmp_path: Path, option: str, value: Any, ratio: str
) -> None:
    folder = Path(shutil.copytree(results, tmp_path / "other"))
    for path in folder.glob("*.J0.*.json"):
        change(path, lambda record: record["mnb"]["launch"]["arguments"].update({option: value}))
    for other in (folder, tmp_path / "stored.json"):
        (tmp_path / "stored.json").write_text(encode_summary(load(folder)))
        (found,) = (one for one in differences(load(results), load(other)) if one.what == f"option {option}")
        assert (found.tests, found.ratio) == (("acme.probe_bf16",), ratio)


def test_a_profile_may_name_it_either_way(results: Path, site: Path, work: Path) -> None:
    (path,) = results.glob("acme.probe_bf16.J0.0.*.json")
    ours = json.loads(path.read_text())["mnb"]
    assert (ours["source"]["origin"], ours["source"]["package"]) == ("acme_bench.probe:probe", "acme_bench")
    assert ours["precision"]["ran_before"] == "bf16"
    report = mnb(work, site, "report", "results-acme", "--weights", str(PACKAGE / "acme-weights.json"))
    assert "partial: 1 of 3 weighted tests" in report

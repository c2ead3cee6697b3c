"""A workload and a data set in somebody else's package: installed for real, listed, run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

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
        pytest.skip("there is no uv to install the package with: scripts/test brings one")
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


def test_a_profile_may_name_it_either_way(site: Path, work: Path) -> None:
    mnb(work, site, "jobs", str(PACKAGE / "acme.json"), "-o", "results-acme", "--name", "probe_bf16", *QUICKLY)
    (path,) = (work / "results-acme").glob("acme.probe_bf16.J0.0.*.json")
    ours = json.loads(path.read_text())["mnb"]
    assert (ours["source"]["origin"], ours["source"]["package"]) == ("acme_bench.probe:probe", "acme_bench")
    assert ours["precision"]["ran_before"] == "bf16"
    report = mnb(work, site, "report", "results-acme", "--weights", str(PACKAGE / "acme-weights.json"))
    assert "partial: 1 of 3 tests" in report

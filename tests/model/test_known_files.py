"""A file of another kind than expected is called by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.model.known_files import WORDS, FileKind, kind_of
from milabench_ng.model.shipped import find, names

DATA = Path(__file__).parents[1] / "data"
RECORD = DATA / "standard.recom.J0.0.20261121-131334-263402.json"
BIDS = {"reference": "v100", "bids": {"acme": {"results": "acme/", "price": 250000}}}
EXAMPLES: dict[FileKind, str] = {
    "profile": str(find("profiles", "quick")),
    "rules": str(find("rules", "standard")),
    "weights": str(find("weights", "quick")),
    "summary": str(find("baselines", "h200")),
    "record": str(RECORD),
}


def test_each_shipped_file_is_known() -> None:
    for folder, kind in (("profiles", "profile"), ("rules", "rules"), ("weights", "weights"), ("baselines", "summary")):
        for name in names(folder):  # type: ignore[arg-type]
            path = find(folder, name)  # type: ignore[arg-type]
            assert path is not None
            assert kind_of(json.loads(path.read_text())) == kind, path


@pytest.mark.parametrize(
    ("name", "kind"), [("profile-standard", "profile"), ("weights-standard", "weights"), ("v100", "summary")]
)
def test_files_of_2020_are_known(name: str, kind: FileKind) -> None:
    assert kind_of(json.loads((DATA / "milarun2020" / f"{name}.json").read_text())) == kind


def test_what_has_no_file_here_is_known_by_its_keys() -> None:
    assert kind_of(json.loads(RECORD.read_text())) == "record"
    assert kind_of(BIDS) == "bids"
    assert kind_of({"schema": 1, "run_id": "x", "plan": {}, "job_id": None}) == "manifest"
    assert kind_of({"schema": 1, "fleet_id": "x", "nodes": [], "job_id": None}) == "fleet"
    assert kind_of({"schema": 1, "suite": "quick", "units": "true", "failures": {}, "sub_scores": []}) == "report"
    for unknown in ({}, [], 1, None, "text", {"a": {}}, {"schema": 1}, {"bids": {}, "*": {}}):
        assert kind_of(unknown) is None


def test_a_test_of_a_profile_may_have_any_name() -> None:
    assert kind_of({"bids": {"workload": "vae"}, "reference": {"workload": "vae"}}) == "profile"
    assert kind_of({"weight": {"workload": "vae"}, "job_id": {"workload": "vae"}}) == "profile"


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (["jobs", "FILE", "--dry-run"], "profile"),
        (["bids", "FILE"], "bids"),
        (["report", "FILE"], "summary"),
        (["report", "v100.json", "--rules", "FILE"], "rules"),
        (["report", str(find("baselines", "h200")), "--weights", "FILE"], "weights"),
        (["verify", "FILE"], "bundle"),
        (["resume", "FILE"], "manifest"),
    ],
)
def test_another_file_is_called_by_its_name(
    command: list[str], wanted: FileKind, kind: FileKind, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == wanted or (kind == "record" and wanted == "summary"):  # a report on one record
        return
    assert call([EXAMPLES[kind] if word == "FILE" else word for word in command]) == 2
    assert f"this is {WORDS[kind][0]}. " in capsys.readouterr().err


def test_a_wrong_file_to_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("profile", "summary"):
        assert call(["rerun", EXAMPLES[kind]]) == 2  # type: ignore[index]
        assert f"this is {WORDS[kind][0]}. " in capsys.readouterr().err  # type: ignore[index]


def test_bids_are_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bids.json").write_text(json.dumps(BIDS))
    assert call(["report", str(tmp_path / "bids.json")]) == 2
    assert capsys.readouterr().err == f"mnb: {tmp_path}/bids.json: this is a bids file. Give it to mnb bids\n"

"""Rules on tests of certain kinds, both ways: an honest folder keeps them, and each attack is found."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import family_attacks
import make_records
import pytest
import tampering
from make_records import device

from milabench_ng.model.plan import ResolvedOptions
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import build_profile
from milabench_ng.model.units import MIB
from milabench_ng.records.latency import bucket_of
from milabench_ng.verification.findings import Verification
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify

TESTS: dict[str, dict[str, Any]] = {
    "beside": {"workload": "toy_reg", "company": ["noise"]},
    "noise": {"workload": "memory_stream", "role": "company"},
    "checkpoint": {"workload": "checkpoint"},
    "infer": {"workload": "cv_infer"},
    "amp": {"workload": "scaling"},
    "held": {"workload": "loader"},
}
LIMITED = ("m.checkpoint", "m.held")


def of_its_kind(content: dict[str, Any]) -> None:
    """What a run notes of such tests; a slice has 5 steps in 0.5 s."""
    name, mnb = content["name"], content["mnb"]
    mnb["data"] = mnb["data"] if mnb["launch"]["workload"] == "loader" else None
    for rank in mnb["ranks"]:
        for row in rank["slices"]:
            row[5:] = [None, [[bucket_of(0.09), row[3]]] if name == "m.infer" else [], {}]
        if name == "m.infer":
            rank["gradient_norms"] = {}
        if name == "m.amp":
            steps = sum(row[3] for row in rank["slices"])
            rank["skipped"] = {"steps": steps, "skipped": 1, "settled_steps": 50, "settled_skipped": 0}
            mnb["precision"] |= {"requested": "amp", "ran_before": "amp", "ran_after": "amp", "layer_dtype": "float16"}
    if name == "m.checkpoint":
        mnb["environment"]["MNB_STORAGE"] = "/data/mnb-files"
    if name in LIMITED:
        held = [{"device": "8:0", "read_bytes_per_s": 1000 * MIB}]
        for share in mnb["isolation"].values():
            share["io"] = {"method": "io.max", "device": "8:0", "disk": "sda", "read_bytes_per_s": 1000 * MIB}
            share["io"] |= {"probed_bytes": 1000 * MIB, "probed_read_bytes_per_s": 1001.0 * MIB}
            for edge in ("requested", "effective", "effective_end"):
                share[edge]["io"] = held


def with_io(content: dict[str, Any]) -> None:
    """A profile that limits what two tests may read."""
    tests = json.loads(content["profile"]["text"])
    for label in LIMITED:
        tests[label.removeprefix("m.")]["io"] = {"read": "1000 MiB/s"}
    text = json.dumps(tests)
    content["profile"] |= {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repeats of all tests on two devices."""
    place = tmp_path_factory.mktemp("families") / "results"
    profile = build_profile("m", TESTS, "{}", "m.json")
    options = {name: ResolvedOptions(make_records.arguments_of(test.workload)) for name, test in profile.tests.items()}
    options["amp"].arguments["precision"] = "amp"
    whole = make_plan(profile, options, [device(index) for index in range(2)], 2)
    make_records.write_run(place, whole, slices=24)
    tampering.records(of_its_kind)(place)
    make_records.write_ledger(place, whole)
    tampering.manifest(with_io)(place)
    return place


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "results"))


def broken(folder: Path) -> dict[str, tuple[str, ...]]:
    """Without the rules on the profile, which is not the one that made these records."""
    found: Verification = verify(folder, Rules())
    return {one.id: one.reasons for one in found.having("fail") if one.id not in ("R8", "R10", "R37")}


def test_an_honest_folder_keeps_them(folder: Path) -> None:
    assert broken(folder) == {}


def test_the_share_of_a_test_is_found_in_a_suite_with_a_dot(folder: Path) -> None:
    def renamed(content: dict[str, Any]) -> None:
        launch = content["mnb"]["launch"]
        launch["test"] = launch["test"].replace("m.", "io.v2.")

    tampering.records(renamed)(folder)
    assert not [why for why in broken(folder).get("R38", ()) if "its I/O share" in why]


@pytest.mark.parametrize("case", family_attacks.ATTACKS)
def test_each_attack_is_found(case: str, folder: Path) -> None:
    rule, tamper, reason = family_attacks.ATTACKS[case]
    tamper(folder)
    assert reason in "\n".join(broken(folder)[rule])


@pytest.mark.parametrize(
    "below", [{"kind": "memory", "filesystem": "tmpfs"}, {"filesystem": "ext4", "rests_on": "tmpfs"}], ids=str
)
def test_files_in_memory_without_their_mark_are_found(below: dict[str, str], folder: Path) -> None:
    def moved(content: dict[str, Any]) -> None:
        there = content["storage"]["dataroot"]
        file = [{**there, "kind": "memory", "filesystem": below["rests_on"]}] if "rests_on" in below else []
        there.update(below | {"rests_on": file})

    def untold() -> list[str]:
        (found,) = [one for one in verify(folder, Rules(marks_refused=True)).rulings if one.id == "R22"]
        return [why for why in found.reasons if "output was written to" in why]

    assert untold() == []
    tampering.manifest(moved)(folder)
    lacking = untold()
    assert lacking
    assert all("checkpoint" in why and why.endswith("but the record has no such warning") for why in lacking)

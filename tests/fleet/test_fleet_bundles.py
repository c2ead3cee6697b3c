"""The bundle of a fleet: what comes out of it is what went in, and verify looks at all of it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.fleet.bundling import opened_fleet
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.model.shipped import find
from milabench_ng.records.names import file_digest
from milabench_ng.verification.signing import make_key
from tests.fleet.conftest import Say
from tests.fleet.made_folders import packed, session_folder, write_fleet

NODES = tuple(f"gpu{number}" for number in range(1, 6))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fleet(tmp_path_factory.mktemp("made") / "fleet", NODES, retests={"retest-1": ["gpu2"]})


def test_a_fleet_is_packed_and_verified_and_reported_from_its_bundle(fleet: Path, say: Say, tmp_path: Path) -> None:
    bundle = tmp_path / "fleet.bundle.tar.gz"
    code, printed, _ = say("bundle", fleet, "-o", bundle)
    assert (code, "files:   8 (" in printed) == (0, True)
    assert file_digest(bundle.read_bytes()) in printed
    code, printed, told = say("verify", bundle)
    assert (code, told) == (0, "")
    assert printed.splitlines()[0].split(maxsplit=1)[1] == "PASS: 6 of 6 sessions of nodes pass"
    assert "(unsigned)" in printed
    of_folder, of_bundle = (json.loads(say("report", one, "--format", "json")[1])["report"] for one in (fleet, bundle))
    assert of_bundle.pop("source") == str(bundle)
    of_folder.pop("source")
    assert of_bundle == of_folder
    assert f"tar -xzf {bundle}, then mnb report nodes/NODE/screen.tar.gz" in say("report", bundle, "--per-gpu")[2]
    again = tmp_path / "again.tar.gz"
    assert say("bundle", fleet, "-o", again)[0] == 0
    assert again.read_bytes() == bundle.read_bytes()
    assert say("bundle", fleet, "-o", bundle)[0] == 2, "it is not replaced"


def test_what_was_changed_in_a_bundle_is_told(fleet: Path, say: Say, tmp_path: Path) -> None:
    bundle = tmp_path / "fleet.bundle.tar.gz"
    say("bundle", fleet, "-o", bundle)
    files = members(bundle)
    name = "nodes/gpu2/screen.tar.gz"
    changed = {**files, name: files["nodes/gpu3/screen.tar.gz"]}
    code, printed, _ = say("verify", put(tmp_path / "changed.tar.gz", changed))
    assert code == 1
    assert f"{name} was changed after it was packed" in " ".join(printed.split())
    assert "gpu3 screen is a copy of gpu2 screen" in printed
    code, _, told = say("verify", put(tmp_path / "more.tar.gz", files | {"nodes/gpu2/x.sh": b""}))
    assert (code, "'nodes/gpu2/x.sh' is not a file of a bundle" in told) == (2, True)
    del files["nodes/gpu2/retest-1.tar.gz"]
    assert "is in the packing list but not in the bundle" in say("verify", put(tmp_path / "less.tar.gz", files))[1]


def test_a_signature_is_over_the_whole_fleet(fleet: Path, say: Say, tmp_path: Path) -> None:
    key, signers = tmp_path / "key", tmp_path / "signers"
    signers.write_text(f"vendor@example.org {make_key(key, 'vendor')}")
    signed, bare = tmp_path / "signed.tar.gz", tmp_path / "bare.tar.gz"
    assert say("bundle", fleet, "-o", signed, "--sign", key)[0] == 0
    assert say("bundle", fleet, "-o", bare)[0] == 0
    code, printed, _ = say("verify", signed, "--allowed-signers", signers)
    assert (code, "signed by vendor@example.org" in printed) == (0, True)
    code, printed, _ = say("verify", bare, "--allowed-signers", signers)
    assert (code, "unsigned" in printed) == (1, True)
    assert say("verify", fleet, "--allowed-signers", signers)[0] == 1


def test_plain_folders_are_packed_as_nodes_do(fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "fleet.bundle.tar.gz"
    assert call(["bundle", str(fleet), "-o", str(bundle)]) == 0
    capsys.readouterr()
    before = {one.name: one.read_ledger() for one in FleetFolder.read(fleet).sessions}
    with opened_fleet(bundle) as there:
        assert {one.name: one.read_ledger() for one in there.fleet.sessions} == before
        assert there.damage == ()
        packed_folder, plain_folder = there.fleet.sessions[0].path, session_folder(fleet, "gpu1", "screen")
        printed = []
        for one in (packed_folder, plain_folder):
            assert call(["report", str(one), "--format", "csv"]) == 1, "tests of the suite are missing"
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1]
    assert session_folder(fleet, "gpu1", "screen").is_dir()
    assert not [path for path in fleet.iterdir() if path.name.startswith(".")]


def test_weights_are_not_for_a_fleet(fleet: Path, say: Say) -> None:
    code, _, told = say("bundle", fleet, "--weights", str(find("weights", "quick")))
    assert (code, "--weights: not for a fleet" in told) == (2, True)


def put(path: Path, files: dict[str, bytes]) -> Path:
    path.write_bytes(packed(files))
    return path


def members(bundle: Path) -> dict[str, bytes]:
    with tarfile.open(bundle) as archive:
        return {one.name: file.read() for one in archive if (file := archive.extractfile(one))}

"""Going on with a folder that another version wrote: refused in one message, before anything is touched."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from milabench_ng import __version__
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.run.persistence.resuming import read_manifest, resumed_request

STORED = Path(__file__).parents[1] / "data" / "stored"


@pytest.fixture(params=["0.2.0"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A result folder of an earlier version, with a line of the ledger and a record that a crash cut short."""
    bundle = STORED / request.param / "run.bundle.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(bundle.read_bytes())) as archive:
        archive.extractall(tmp_path, filter="data")
    made = tmp_path / "results"
    with (made / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"number":')
    (made / ".a record.json.tmp").write_bytes(b"{")
    return made


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(at): (at.read_bytes(), at.stat().st_mtime_ns) for at in sorted(folder.rglob("*")) if at.is_file()}


@pytest.mark.parametrize("command", [["resume"], ["jobs", "--resume"]], ids=" ".join)
def test_another_version_is_refused_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    then, before = read_manifest(folder).version, everything(folder)
    assert then != __version__
    assert call([*command, str(folder)]) == 2
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    said = " ".join(stderr.split())
    assert f"made by mnb {then}, but this is mnb {__version__}. " in said
    assert said.endswith("--accept-difference software")
    assert everything(folder) == before


def test_both_commands_go_on_with_the_same_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr("milabench_ng.cli.resume.execute", lambda request, weights, _: made.append((request, weights)))
    monkeypatch.setattr("milabench_ng.cli.resume.require_weights", lambda *_: None)
    (folder / "w.json").write_text("{}")
    (folder / "spool").mkdir()
    options = f"--retry 2 --spool {folder}/spool --weights {folder}/w.json"
    options += " --accept-difference software --accept-difference node"
    for command in (["resume"], ["jobs", "--resume"]):
        assert call([*command, str(folder), *options.split()]) == 0
    first, second = made
    assert first == second
    request, weights = first  # type: ignore[misc]
    assert (request.retry, request.spool, request.accept) == (2, folder / "spool", ("software", "node"))
    assert weights == folder / "w.json"


def test_a_mistyped_spool_is_refused_before_anything_is_touched(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milabench_ng.cli.resume.execute", lambda *_: pytest.fail("it goes on"))
    (folder.parent / "mnb-spool-1").mkdir()
    before = everything(folder)
    for command in (["resume"], ["jobs", "--resume"]):
        accepted = ["--accept-difference", "software"]
        assert call([*command, str(folder), "--spool", str(folder.parent / "mnb-spool-2"), *accepted]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "mnb-spool-2: no such file (did you mean" in said
        assert "create it first" in said
        assert call([*command, str(folder), "--spool", "/proc/sys", *accepted]) == 2
        assert "/proc/sys is not writable" in capsys.readouterr().err
        assert call([*command, str(folder), "--spool", __file__, *accepted]) == 2
        assert "no saved results found" in capsys.readouterr().err
    assert everything(folder) == before
    assert not (folder.parent / "mnb-spool-2").exists()


def test_the_request_of_another_version_is_understood_once_the_difference_is_accepted(folder: Path) -> None:
    request = resumed_request(folder, None, accept=("software",), retry=2)
    assert (request.resume, request.outdir, request.accept, request.retry) == (True, folder, ("software",), 2)
    assert (request.names, request.repeat, request.tenants) == (("toy_reg", "vae"), 2, 2)
    assert request.rule.length_s == 2.0


@pytest.mark.parametrize("accepted", [("node",), ("isolation",), ("node", "isolation")])
def test_accepting_something_else_is_not_enough(folder: Path, accepted: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=r"--accept-difference software$"):
        resumed_request(folder, None, accept=accepted)  # type: ignore[arg-type]


def test_a_manifest_of_a_newer_schema_is_refused_whatever_is_accepted(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"schema": 99, "version": "9.0.0"}))
    with pytest.raises(InputError, match=r"^/.*run\.json: manifest schema 99: this is mnb .*. Update mnb$"):
        resumed_request(folder, None, accept=("node", "software", "isolation"))

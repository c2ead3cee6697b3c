"""What nodes send becomes result folders, and nothing else; what is here is never lost for it."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path

import pytest

from milabench_ng.fleet.folder import session_folder
from milabench_ng.fleet.ledger import Collected, NotCollected
from milabench_ng.fleet.pulling import pulling
from milabench_ng.records.names import file_digest


def archive(files: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    """A compressed archive of files, or of members as they are."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                made.addfile(content)
                continue
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def pull(folder: Path, packed: bytes, problem: str = "") -> Collected | NotCollected:
    """What comes of an archive that node ``a`` sends."""
    text = base64.b64encode(packed)
    with pulling(folder, "screen", ("a",)) as made:
        for start in range(0, len(text), 760):
            made.heard("a", text[start : start + 760])
        found = made.unpack("a", problem)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    return found


FIRST, LATER, OTHER = b"one\n", b"one\ntwo\n", b"another\n"


def test_a_run_and_its_continuation_are_one_folder(tmp_path: Path) -> None:
    place = session_folder(tmp_path, "a", "screen")
    files = {
        "screen/run.json": b"{}",
        "screen/ledger.jsonl": FIRST,
        "screen/logs/x.J0.0.log": b"",
        "screen.log": b"said",
    }
    first = pull(tmp_path, archive(files))
    assert first == Collected(node="a", session="screen", files=3, ledger_sha256=file_digest(FIRST))
    assert (place.with_name("screen.log").read_bytes(), (place / "run.json").read_bytes()) == (b"said", b"{}")
    pull(tmp_path, archive(files | {"screen/ledger.jsonl": LATER}))
    assert sorted(path.name for path in place.parent.iterdir()) == ["screen", "screen.log"]
    assert (place / "ledger.jsonl").read_bytes() == LATER


def test_another_run_takes_the_place_and_not_the_files(tmp_path: Path) -> None:
    place = session_folder(tmp_path, "a", "screen")
    for ledger in (LATER, OTHER, FIRST):
        assert isinstance(pull(tmp_path, archive({"screen/ledger.jsonl": ledger})), Collected)
    ledgers = {path.name: (path / "ledger.jsonl").read_bytes() for path in place.parent.iterdir()}
    assert ledgers == {"screen": FIRST, "screen.aside-1": LATER, "screen.aside-2": OTHER}


def link(name: str) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return made


@pytest.mark.parametrize(
    "files",
    [
        {"../up.json": b""},
        {"/etc/cron.d/x": b""},
        {"screen/../../up": b""},
        {"screen/evil.sh": b""},
        {"retest-1/run.json": b""},
        {"screen/run.json": link("screen/run.json")},
    ],
)
def test_what_is_no_file_of_a_run_is_refused(tmp_path: Path, files: dict[str, bytes | tarfile.TarInfo]) -> None:
    pull(tmp_path, archive({"screen/ledger.jsonl": FIRST}))
    found = pull(tmp_path, archive(files))
    assert isinstance(found, NotCollected)
    assert "refused" in found.reason
    assert (session_folder(tmp_path, "a", "screen") / "ledger.jsonl").read_bytes() == FIRST


def test_an_archive_that_is_not_whole_says_so_and_changes_nothing(tmp_path: Path) -> None:
    whole = archive({"screen/ledger.jsonl": FIRST, "screen/run.json": bytes(range(256)) * 99})
    for packed, reason in ((b"", "it sent nothing"), (whole[:-50], "damaged"), (b"plain", "damaged")):
        found = pull(tmp_path, packed)
        assert isinstance(found, NotCollected)
        assert reason in found.reason
    assert pull(tmp_path, whole, "no route") == NotCollected(node="a", session="screen", reason="no route")
    with pulling(tmp_path, "screen", ("a",)) as made:
        made.heard("a", b"x")
        found = made.unpack("a")
    assert isinstance(found, NotCollected)
    assert "base64" in found.reason

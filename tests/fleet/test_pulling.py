"""What nodes send becomes result folders, and nothing else; what is here is never lost for it."""

from __future__ import annotations

import base64
import re
import tarfile
from pathlib import Path

import pytest

from milabench_ng.fleet.folder import NodeSession, session_file
from milabench_ng.fleet.launchers.local import Local
from milabench_ng.fleet.ledger import Collected, NotCollected
from milabench_ng.fleet.node_scripts import pull_script
from milabench_ng.fleet.pulling import _KEPT_IN_MEMORY, Parcel, pulling
from milabench_ng.model.errors import InputError
from milabench_ng.records.names import file_digest
from milabench_ng.verification.opening import opened
from tests.fleet.made_folders import made_manifest, packed


def pull(folder: Path, parcel: bytes, problem: str = "", sha256: str = "") -> Collected | NotCollected:
    """What comes of an archive that node ``a`` sends."""
    text = base64.b64encode(parcel)
    with pulling(folder, "screen", ("a",)) as made:
        for line in (b"Welcome to the cluster", b"", b"mnb-output:"):
            made.heard("a", line)
        for start in range(0, len(text), 760):
            made.heard("a", text[start : start + 760])
        made.heard("a", f"mnb-output: {sha256 or file_digest(parcel)}".encode())
        found = made.keep("a", problem)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    return found


FIRST, LATER, OTHER = b"one\n", b"one\ntwo\n", b"another\n"


def session_at(folder: Path, name: str = "screen.tar.gz") -> NodeSession:
    return NodeSession("a", "screen", session_file(folder, "a", "screen").with_name(name))


def test_a_run_and_its_continuation_are_one_packed_folder(tmp_path: Path) -> None:
    files = {
        "screen.log": b"said",
        "screen.summary.json": b"{}",
        "screen/ledger.jsonl": FIRST,
        "screen/run.json": b"{}",
        "screen/logs/x.J0.0.log": b"",
    }
    parcel = packed(files)
    first = pull(tmp_path, parcel)
    assert first == Collected(
        node="a",
        session="screen",
        sha256=file_digest(parcel),
        ledger_sha256=file_digest(FIRST),
        summary_sha256=file_digest(b"{}"),
    )
    one = session_at(tmp_path)
    assert (one.path.with_name("screen.log").read_bytes(), one.path.read_bytes()) == (b"said", parcel)
    pull(tmp_path, packed(files | {"screen/ledger.jsonl": LATER}))
    assert sorted(path.name for path in one.path.parent.iterdir()) == [
        "screen.log",
        "screen.summary.json",
        "screen.tar.gz",
    ]
    assert one.read_ledger() == LATER


def test_another_run_takes_the_place_and_not_the_files(tmp_path: Path) -> None:
    for ledger in (LATER, OTHER, FIRST):
        assert isinstance(pull(tmp_path, packed({"screen/ledger.jsonl": ledger})), Collected)
    place = session_file(tmp_path, "a", "screen").parent
    ledgers = {path.name: session_at(tmp_path, path.name).read_ledger() for path in place.glob("*.tar.gz")}
    assert ledgers == {"screen.tar.gz": FIRST, "screen.aside-1.tar.gz": LATER, "screen.aside-2.tar.gz": OTHER}


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
    """At once if the packed folder begins with it, and else when it is opened; nothing is written of it."""
    pull(tmp_path, packed({"screen/ledger.jsonl": FIRST}))
    found = pull(tmp_path, packed(files))
    assert isinstance(found, NotCollected)
    assert re.fullmatch(r"('.*' is|what it sent is) not .*", found.reason), "and no temporary name is told"
    assert session_at(tmp_path).read_ledger() == FIRST
    whole: dict[str, bytes | tarfile.TarInfo] = {
        "screen.log": b"",
        "screen.summary.json": b"",
        "screen/ledger.jsonl": FIRST,
    }
    assert isinstance(pull(tmp_path, packed(whole | files)), Collected)
    with pytest.raises(InputError, match=r"screen.tar.gz: refused: '.*' is not a"), opened(session_at(tmp_path).path):
        pass


def test_what_has_not_come_whole_says_so_and_changes_nothing(tmp_path: Path) -> None:
    whole = packed({"screen/ledger.jsonl": FIRST, "screen/run.json": bytes(range(256)) * 99})
    for parcel, reason in ((b"", "it sent nothing"), (whole[:-50], "not come whole"), (b"plain", "not come whole")):
        found = pull(tmp_path, parcel, sha256=file_digest(whole))
        assert isinstance(found, NotCollected)
        assert reason in found.reason
    for parcel in (b"plain", whole[:50]):
        assert "its archive is damaged: " in getattr(pull(tmp_path, parcel), "reason", "")
    assert pull(tmp_path, whole, "no route") == NotCollected(node="a", session="screen", reason="no route")
    with pulling(tmp_path, "screen", ("a",)) as made:
        made.heard("a", b"mnb-output:")
        made.heard("a", b"x")
        found = made.keep("a")
    assert isinstance(found, NotCollected)
    assert "base64" in found.reason
    assert not (tmp_path / "nodes").exists()


def test_blank_lines_take_no_memory(tmp_path: Path) -> None:
    parcel = Parcel(tmp_path / "a")
    parcel.add(b"mnb-output:")
    for _ in range(3 * _KEPT_IN_MEMORY):
        parcel.add(b"")
    assert len(parcel._lines) <= _KEPT_IN_MEMORY


@pytest.mark.slow
def test_a_node_packs_what_it_has_without_a_place_to_write(tmp_path: Path) -> None:
    """Its disk may be full or read-only: a link to a device that is always full, and a folder, stand for that."""
    there = tmp_path / "there" / "a"
    (there / "screen").mkdir(parents=True)
    (there / "screen" / "ledger.jsonl").write_bytes(FIRST)
    asked = made_manifest(("a",), mnb=("false",), node_folder=str(there.parent))
    (there / ".screen.tar.gz").symlink_to("/dev/full")
    (there / ".lock").mkdir()
    launcher = Local(("a",))
    with pulling(tmp_path, "screen", ("a",)) as made:
        with launcher.run(("a",), pull_script(asked, "screen"), made.heard) as ended:
            assert [one.status for one in ended] == [0]
        assert isinstance(made.keep("a"), Collected)
    assert session_at(tmp_path).read_ledger() == FIRST

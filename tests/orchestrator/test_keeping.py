"""Results on disks that fail: nothing is lost, and no file has half its content under its final name."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench_ng.errors import InputError
from milabench_ng.orchestrator.persistence.result_writer import ResultWriter
from milabench_ng.orchestrator.persistence.resuming import open_writer
from milabench_ng.records.ledger import AnyLedgerEvent, Attempt, Recorded, Started, Torn, check_chain
from milabench_ng.records.names import LEDGER, MANIFEST, ResultFolder, file_digest, temporary_name
from milabench_ng.records.reading import is_going_on

STARTED = Started(
    run_id="r", version="1", plan_sha256="p", profile_sha256="q", launches=9, order="interleaved", nonce=None
)
ATTEMPT = Attempt(label="s.a", job_id="0.0", number=1, batch=0)
BIG = b"x" * 100_000


def recorded(name: str, content: bytes) -> Recorded:
    return Recorded(label="s.a", job_id="0.0", number=1, file=name, sha256=file_digest(content), cause=None)


def open_new(path: Path, spool: Path | None = None) -> tuple[ResultWriter, list[str]]:
    """A folder with a manifest and the first line; and what its writer says."""
    folder = ResultFolder(path)
    folder.logs.mkdir(parents=True)
    writer = open_writer(folder, spool)
    said: list[str] = []
    writer.tell = said.append
    writer.promise(b"{}", STARTED)
    return writer, said


def events(path: Path) -> tuple[AnyLedgerEvent, ...]:
    """What a ledger on the disk says; its chain is sound."""
    chain = check_chain((path / LEDGER).read_bytes())
    assert (chain.problems, chain.torn) == ((), b"")
    return chain.events


def hidden(path: Path) -> list[Path]:
    return list(path.rglob(".*"))


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A tmpfs that can be made full or read-only."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "mnb-test", place], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr}")

    def remount(options: str) -> Path:
        subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)
        return place

    yield remount
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def freeze(mount: Callable[..., Path]) -> Iterator[Callable[[str], Path]]:
    """Makes a result folder read-only ("+i") and writable again ("-i"), for root as well."""
    place = mount("rw") / "results"

    def change(flag: str) -> Path:
        done = subprocess.run(["chattr", flag, place], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"this file system has no immutable folders: {done.stderr}")
        return place

    yield change
    change("-i")


@pytest.mark.root
def test_a_full_disk_keeps_results_in_memory_until_there_is_room(mount: Callable[..., Path]) -> None:
    place = mount("size=256k") / "results"
    writer, said = open_new(place)
    assert writer.keep([("one.json", BIG)], recorded("one.json", BIG))
    assert not writer.keep([("two.json", BIG), ("three.json", BIG)], recorded("two.json", BIG))
    assert not writer.keep([("four.json", b"4")], ATTEMPT), "in order: what fits must not overtake"
    assert [line for line in said if "No space left" in line] == said
    assert len(said) == 1
    assert sorted(path.name for path in place.glob("*.json")) == ["one.json", MANIFEST]
    assert hidden(place) == []
    assert events(place) == (STARTED, recorded("one.json", BIG))
    mount("size=1m")
    assert writer.flush()
    assert (place / "two.json").read_bytes() == (place / "three.json").read_bytes() == BIG
    assert (place / "four.json").read_bytes() == b"4"
    assert events(place) == (STARTED, recorded("one.json", BIG), recorded("two.json", BIG), ATTEMPT)
    assert "can be written again" in said[-1]


@pytest.mark.root
def test_a_read_only_disk_sends_results_to_the_spool_folder_and_gets_them_back(
    mount: Callable[..., Path], freeze: Callable[[str], Path], tmp_path: Path
) -> None:
    place, spool = mount("rw") / "results", tmp_path / "spool"
    writer, said = open_new(place, spool)
    freeze("+i")
    assert not writer.keep([("one.json", b"1")], recorded("one.json", b"1"))
    assert "Operation not permitted" in said[0]
    assert (spool / "one.json").read_bytes() == b"1"
    writer.rescue(spool)
    writer.close()
    freeze("-i")
    assert events(place) == (STARTED,)
    again = open_writer(ResultFolder(place), spool)
    assert events(place) == again.chain.events == (STARTED, recorded("one.json", b"1"))
    assert (place / "one.json").read_bytes() == b"1"
    assert list(spool.glob("*.json*")) == []


@pytest.mark.root
def test_a_disk_that_recovers_leaves_nothing_in_the_spool_folder(
    mount: Callable[..., Path], freeze: Callable[[str], Path], tmp_path: Path
) -> None:
    place, spool = mount("rw") / "results", tmp_path / "spool"
    writer, _ = open_new(place, spool)
    freeze("+i")
    writer.keep([("one.json", b"1")], recorded("one.json", b"1"))
    freeze("-i")
    assert writer.keep([("two.json", b"2")], recorded("two.json", b"2"))
    assert list(spool.iterdir()) == []
    assert events(place) == (STARTED, recorded("one.json", b"1"), recorded("two.json", b"2"))


def test_a_folder_that_is_removed_is_made_anew_with_its_ledger(tmp_path: Path) -> None:
    place = tmp_path / "results"
    writer, said = open_new(place)
    writer.keep([("one.json", b"1")], recorded("one.json", b"1"))
    shutil.rmtree(place)
    assert writer.keep([("two.json", b"2")], recorded("two.json", b"2"))
    assert "was removed" in said[0]
    assert sorted(path.name for path in place.glob("*.json*")) == [LEDGER, MANIFEST, "two.json"]
    assert events(place) == (STARTED, recorded("one.json", b"1"), recorded("two.json", b"2"))
    with pytest.raises(InputError, match="another mnb writes into it"):
        open_writer(ResultFolder(place), None)


def test_a_folder_that_is_made_anew_is_in_progress_like_the_first(tmp_path: Path) -> None:
    place = tmp_path / "results"
    writer, _ = open_new(place)
    with writer.going_on():
        assert is_going_on(place)
        shutil.rmtree(place)
        writer.keep([("two.json", b"2")], recorded("two.json", b"2"))
        assert is_going_on(place)
    assert not is_going_on(place)


def test_what_the_ledger_promises_has_its_name_on_the_disk_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "results"
    writer, _ = open_new(place)
    flushed: list[str] = []
    flush = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    writer.keep([("one.json", b"1")], recorded("one.json", b"1"))
    assert flushed == [".one.json.tmp", place.name, LEDGER, place.name]


def test_two_writers_of_one_folder_are_kept_apart(tmp_path: Path) -> None:
    writer, _ = open_new(tmp_path / "results")
    with pytest.raises(InputError, match="another mnb writes into it"):
        open_writer(ResultFolder(tmp_path / "results"), None)
    writer.close()
    open_writer(ResultFolder(tmp_path / "results"), None).close()


def test_a_crash_between_ledger_and_final_names_is_finished(tmp_path: Path) -> None:
    place = tmp_path / "results"
    writer, _ = open_new(place)
    writer.keep([("one.json", b"1")], recorded("one.json", b"1"))
    writer.close()
    os.replace(place / "one.json", temporary_name(place / "one.json"))  # as before the last step
    temporary_name(place / "two.json").write_bytes(b"half of")  # as before the ledger's line
    open_writer(ResultFolder(place), None)
    assert (place / "one.json").read_bytes() == b"1"
    assert hidden(place) == []


def test_a_line_cut_short_by_a_crash_is_taken_off_and_kept_in_words(tmp_path: Path) -> None:
    place = tmp_path / "results"
    writer, _ = open_new(place)
    writer.close()
    with open(place / LEDGER, "ab") as ledger:
        ledger.write(b'{"number":1,"prev')
    open_writer(ResultFolder(place), None)
    assert events(place) == (STARTED, Torn(text='{"number":1,"prev'))


def test_a_ledger_that_was_edited_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "results"
    writer, _ = open_new(place)
    writer.keep((), ATTEMPT)
    writer.keep((), ATTEMPT)
    writer.close()
    lines = (place / LEDGER).read_bytes().splitlines(keepends=True)
    (place / LEDGER).write_bytes(lines[0] + lines[2])
    with pytest.raises(InputError, match="the folder was changed"):
        open_writer(ResultFolder(place), None)


@pytest.mark.root
def test_a_spool_folder_that_fails_too_is_told_once(
    mount: Callable[..., Path], freeze: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    place, spool = mount("rw") / "results", tmp_path / "file" / "spool"
    writer, said = open_new(place, spool)
    freeze("+i")
    for name in ("one.json", "two.json"):
        assert not writer.keep([(name, b"1")], recorded(name, b"1"))
    assert [line.partition(" ")[0] for line in said] == [f"{place}:", "--spool"]
    assert writer.waiting == 2
    writer.rescue(tmp_path / "elsewhere")
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {"one.json", "two.json", LEDGER}

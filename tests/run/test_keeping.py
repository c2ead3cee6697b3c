"""Results on disks that fail, and in folders that others change: nothing is lost, and nothing is half written."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.records.ledger import AnyLedgerEvent, Attempt, Damaged, Recorded, Sampled, Started, Torn, check_chain
from milabench_ng.records.names import LEDGER, MANIFEST, ResultFolder, file_digest, is_result_file, temporary_name
from milabench_ng.records.reading import is_going_on
from milabench_ng.run.execution.interruption import Interruption
from milabench_ng.run.persistence import sessions
from milabench_ng.run.persistence.result_writer import ResultWriter
from milabench_ng.run.persistence.resuming import open_writer
from milabench_ng.run.persistence.sessions import SessionName, settle
from tests.run.small_disks import fill, small_disk

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
    with small_disk(tmp_path, "256k") as place:

        def remount(options: str) -> Path:
            subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)
            return place

        yield remount


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
    assert "writable again" in said[-1]


@pytest.mark.root
def test_a_read_only_disk_sends_results_to_the_spool_folder_and_gets_them_back(
    mount: Callable[..., Path], freeze: Callable[[str], Path], tmp_path: Path
) -> None:
    place, spool = mount("rw") / "results", tmp_path / "spool"
    writer, said = open_new(place, spool)
    freeze("+i")
    series = "series/b0.20261126-033659-195046.json.gz"
    files = [("one.json", b"1"), ("logs/s.a.J0.0.log", b"2"), (series, b"\x1f\x8b")]
    kept = Sampled(batch=0, file=series, sha256=file_digest(b"\x1f\x8b"))
    assert not writer.keep(files, recorded("one.json", b"1"), kept)
    assert "Operation not permitted" in said[0]
    assert writer.waiting == sum(path.is_file() for path in spool.rglob("*"))
    assert (spool / "one.json").read_bytes() == b"1"
    writer.rescue(spool)
    writer.close()
    freeze("-i")
    assert events(place) == (STARTED,)
    again = open_writer(ResultFolder(place), spool)
    assert events(place) == again.chain.events == (STARTED, recorded("one.json", b"1"), kept)
    assert (place / "one.json").read_bytes() == b"1"
    assert (place / series).read_bytes() == b"\x1f\x8b"
    assert list(spool.iterdir()) == []


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


@contextlib.contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Files of this process get no larger than ``size`` bytes: the disk takes some of what is written, and no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_start_that_cannot_be_written_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "results"
    (place / "logs").mkdir(parents=True)
    writer = open_writer(ResultFolder(place), tmp_path / "spool")
    with file_limit(100):
        with pytest.raises(InputError, match="File too large"):
            writer.promise(b"{}", STARTED)
        assert writer.flush()
    assert writer.flush(), "as at the end of a run"
    assert not (place / MANIFEST).exists()
    assert (writer.chain.events, events(place)) == ((), ())
    assert not (tmp_path / "spool").exists()


def test_a_folder_that_is_removed_is_made_anew_with_its_ledger(tmp_path: Path) -> None:
    place = tmp_path / "results"
    writer, said = open_new(place)
    writer.keep([("one.json", b"1")], recorded("one.json", b"1"))
    shutil.rmtree(place)
    assert writer.keep([("two.json", b"2")], recorded("two.json", b"2"))
    assert f"{LEDGER} was removed, {MANIFEST} was removed, one.json was removed. Restored" in said[0]
    assert sorted(path.name for path in place.glob("*.json*")) == sorted([LEDGER, MANIFEST, "one.json", "two.json"])
    again = [Damaged(file=name, aside=None, restored=True) for name in (LEDGER, MANIFEST, "one.json")]
    assert events(place) == (STARTED, recorded("one.json", b"1"), *again, recorded("two.json", b"2"))
    with pytest.raises(InputError, match="another mnb is writing to it"):
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


def test_a_line_that_the_disk_takes_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _ = open_new(tmp_path / "results")
    write = os.write

    def take_some(descriptor: int, content: bytes) -> int:
        return write(descriptor, content[:3])

    monkeypatch.setattr(os, "write", take_some)
    assert writer.keep((), ATTEMPT)
    assert events(tmp_path / "results") == (STARTED, ATTEMPT)


def test_two_writers_of_one_folder_are_kept_apart(tmp_path: Path) -> None:
    writer, _ = open_new(tmp_path / "results")
    with pytest.raises(InputError, match="another mnb is writing to it"):
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


def left_in_spool(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that took nothing of a record, and the spool that has it."""
    place, spool = tmp_path / "results", tmp_path / "spool"
    writer, _ = open_new(place, spool)
    with file_limit(0):
        writer.keep([("one.json", b"1")], recorded("one.json", b"1"))
    assert writer.rescue(spool)
    writer.close()
    return place, spool


def test_what_was_spooled_is_brought_back_where_a_line_was_cut_short(tmp_path: Path) -> None:
    place, spool = left_in_spool(tmp_path)
    cut = (spool / LEDGER).read_bytes()[:20]  # as by a disk that takes this, and then no truncation
    with open(place / LEDGER, "ab") as ledger:
        ledger.write(cut)
    again = open_writer(ResultFolder(place), spool)
    assert events(place) == again.chain.events == (STARTED, recorded("one.json", b"1"), Torn(text=cut.decode()))
    assert (place / "one.json").read_bytes() == b"1"


def test_a_disk_that_is_still_full_leaves_the_spool_as_it_is(tmp_path: Path) -> None:
    place, spool = left_in_spool(tmp_path)
    with file_limit(0), pytest.raises(InputError, match=r"File too large, so .*spool was not brought back and stays"):
        open_writer(ResultFolder(place), spool)
    open_writer(ResultFolder(place), spool).close()
    assert (place / "one.json").read_bytes() == b"1"


def test_a_folder_is_free_again_when_its_spool_is_refused(tmp_path: Path) -> None:
    place, spool = tmp_path / "results", tmp_path / "spool"
    writer, _ = open_new(place)
    writer.close()
    spool.mkdir()
    (spool / LEDGER).write_bytes(b"{}\n")
    with pytest.raises(InputError, match="--spool") as held:
        open_writer(ResultFolder(place), spool)
    assert held.traceback, "and with it, whatever its frames have"
    open_writer(ResultFolder(place), None).close()


def test_a_ledger_that_was_edited_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "results"
    writer, _ = open_new(place)
    writer.keep((), ATTEMPT)
    writer.keep((), ATTEMPT)
    writer.close()
    lines = (place / LEDGER).read_bytes().splitlines(keepends=True)
    (place / LEDGER).write_bytes(lines[0] + lines[2])
    with pytest.raises(InputError, match="The folder was changed"):
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
    assert [line.partition(" ")[0] for line in said] == [f"{place}:", f"{spool}:"]
    assert writer.waiting == 3
    writer.rescue(tmp_path / "elsewhere")
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {"one.json", "two.json", LEDGER}


@pytest.mark.root
def test_a_reserve_is_room_for_the_records_of_a_disk_that_others_fill(mount: Callable[..., Path]) -> None:
    disk = mount("size=512k")
    writer, said = open_new(disk / "results")
    seen = sorted(disk.rglob("*"))
    writer.reserve(200_000)
    assert sorted(disk.rglob("*")) == seen, "it has no name"
    hog = fill(disk)
    assert writer.keep([("one.json", BIG)], recorded("one.json", BIG))
    assert (disk / "results" / "one.json").read_bytes() == BIG
    assert events(disk / "results") == (STARTED, recorded("one.json", BIG))
    writer.reserve(400_000)
    assert len(said) == 1
    assert "No space left on device: 390.6 KiB could not be reserved" in said[0]
    assert "Free some space" in said[0]
    hog.unlink()
    writer.reserve(400_000)
    assert os.statvfs(disk).f_bfree * 4096 < 120_000
    writer.close()
    assert os.statvfs(disk).f_bfree * 4096 > 350_000


def test_a_reserve_is_no_larger_than_a_file_may_be(tmp_path: Path) -> None:
    writer, said = open_new(tmp_path / "results")
    with file_limit(50_000):
        writer.reserve(200_000)
        assert said == []
        assert not writer.keep([("one.json", BIG)], recorded("one.json", BIG))
        assert "File too large. Writing failed: mnb keeps 1 record in memory and retries" in said[0]
    assert writer.flush()
    assert events(tmp_path / "results") == (STARTED, recorded("one.json", BIG))


async def settled(writer: ResultWriter, interrupted: Interruption) -> None:
    await settle(writer, SessionName("r", 1), interrupted, None, None, None)


def test_the_command_that_brings_results_back_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _ = open_new(tmp_path / "res ults", tmp_path / "sp ool")
    monkeypatch.setattr(ResultWriter, "flush", lambda _: False)
    monkeypatch.setattr(ResultWriter, "rescue", lambda *_: True)
    monkeypatch.setattr(sessions, "SETTLE_S", 0.0)
    with pytest.raises(MnbError) as ended:
        asyncio.run(settled(writer, Interruption()))
    words = shlex.split(str(ended.value).rpartition("run: ")[2])
    assert words == ["mnb", "resume", str(tmp_path / "res ults"), "--spool", str(tmp_path / "sp ool")]


@pytest.mark.root
def test_what_nothing_takes_is_tried_again_until_there_is_room(
    mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = mount("size=256k")
    writer, said = open_new(disk / "results", disk / "spool")
    monkeypatch.setattr(sessions, "SETTLE_S", 0.0)
    monkeypatch.setattr(sessions, "RETRY_S", 0.01)
    hog = fill(disk)
    writer.keep([("one.json", BIG), ("logs/a.log", b"\xff")], recorded("one.json", BIG))

    async def run() -> None:
        settling = asyncio.create_task(settled(writer, Interruption()))
        while not any("keeps retrying" in line for line in said):
            await asyncio.sleep(0.01)
        hog.unlink()
        await settling

    asyncio.run(run())
    assert len([line for line in said if "in memory and keeps retrying. Free some space" in line]) == 1
    assert "writable again" in said[-1]
    assert events(disk / "results") == (STARTED, recorded("one.json", BIG))
    assert (disk / "results" / "one.json").read_bytes() == BIG


@pytest.mark.root
@pytest.mark.parametrize("how", ["signal", "second signal"])
def test_at_a_signal_what_nothing_takes_is_printed_and_can_be_brought_back(
    mount: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    disk, saved = mount("size=256k"), tmp_path / "saved.txt"
    writer, said = open_new(disk / "results", disk / "spool")
    monkeypatch.setattr(sessions, "SETTLE_S", 0.0)
    monkeypatch.setattr(sessions, "RETRY_S", 0.01)
    hog, content = fill(disk), '{"text": "caf\xe9 \x7f"}'.encode()
    files = [("one.json", content), ("logs/s.a.J0.0.log", b"\xff and more")]
    writer.keep(files, recorded("one.json", content))
    writer.keep((), ATTEMPT)

    async def run() -> None:
        interrupted = Interruption()
        settling = asyncio.create_task(settled(writer, interrupted))
        while not any("keeps retrying" in line for line in said):
            await asyncio.sleep(0.01)
        interrupted.strike(signal.SIGTERM)
        if how == "second signal":
            settling.cancel()
        await settling

    with pytest.raises(MnbError, match=r"cannot write to .* The lines below hold 3 unsaved files") as raised:
        asyncio.run(run())
    assert raised.value.exit_code == 1
    assert f"mnb resume {disk / 'results'} --spool FILE" in str(raised.value)
    saved.write_text(f"whatever else\nmnb: {raised.value}\nand more\n", encoding="ascii")
    writer.close()
    hog.unlink()
    for _ in range(2):  # twice does no harm
        again = open_writer(ResultFolder(disk / "results"), saved)
        assert events(disk / "results") == again.chain.events == (STARTED, recorded("one.json", content), ATTEMPT)
        again.close()
    assert (disk / "results" / "one.json").read_bytes() == content
    assert (disk / "results" / "logs" / "s.a.J0.0.log").read_bytes() == b"\xff and more"


def test_a_file_without_such_lines_is_no_spool(tmp_path: Path) -> None:
    (tmp_path / "saved.txt").write_text("nothing\n")
    (tmp_path / "cut.txt").write_text('{"mnb_file":"one.json","te\n')
    writer, _ = open_new(tmp_path / "results")
    writer.close()
    for name, why in (("saved.txt", "no saved results found"), ("cut.txt", "a line is incomplete")):
        with pytest.raises(InputError, match=why):
            open_writer(ResultFolder(tmp_path / "results"), tmp_path / name)


def test_a_spool_that_fails_for_a_while_keeps_the_order_of_the_ledger(tmp_path: Path) -> None:
    place, spool = tmp_path / "results", tmp_path / "spool"
    writer, _ = open_new(place, spool)
    with file_limit(50_000):
        writer.keep([("one.json", BIG)], recorded("one.json", BIG))  # neither takes it
        writer.keep((), ATTEMPT)
    assert writer.rescue(spool)
    writer.close()
    again = open_writer(ResultFolder(place), spool)
    assert events(place) == again.chain.events == (STARTED, recorded("one.json", BIG), ATTEMPT)


RECORD = "s.a.J0.0.20260106-160000-123456.json"
DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut short": lambda path: os.truncate(path, path.stat().st_size - 2),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
    "edited": lambda path: path.write_bytes(b"!" + path.read_bytes()[1:]),
    "replaced": lambda path: (path.unlink(), path.write_bytes(b"another")),
    "a link": lambda path: (path.rename(path.with_suffix(".moved")), path.symlink_to(path.with_suffix(".moved"))),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [LEDGER, MANIFEST, RECORD])
def test_what_was_damaged_is_written_again_and_kept_as_it_was_found(tmp_path: Path, name: str, damage: str) -> None:
    place = tmp_path / "results"
    writer, said = open_new(place)
    with writer.going_on():
        writer.keep([(RECORD, b"one")], recorded(RECORD, b"one"))
        before = (place / name).read_bytes()
        DAMAGES[damage](place / name)
        found = None if damage == "removed" else f"{name}.damaged-1"
        assert writer.keep([("two.json", b"2")], recorded("two.json", b"2"))
        assert is_going_on(place)
    assert said == [
        f"{place}: changed by another program: {name} was {f'changed (see {found})' if found else 'removed'}. Restored"
    ]
    again = Damaged(file=name, aside=found, restored=True)
    assert (
        events(place) == writer.chain.events == (STARTED, recorded(RECORD, b"one"), again, recorded("two.json", b"2"))
    )
    assert (place / name).read_bytes().startswith(before)
    assert name == LEDGER or (place / name).read_bytes() == before
    assert {path.name for path in place.glob("*.damaged-*")} == ({found} if found else set())
    assert is_result_file(f"{name}.damaged-1")
    with pytest.raises(InputError, match="another mnb is writing to it"):
        open_writer(ResultFolder(place), None)


def test_what_is_damaged_twice_is_kept_twice_and_a_touched_file_is_not_damaged(tmp_path: Path) -> None:
    writer, said = open_new(tmp_path / "results")
    writer.keep([(RECORD, b"one")], recorded(RECORD, b"one"))
    os.utime(tmp_path / "results" / RECORD)
    writer.keep((), ATTEMPT)
    assert said == []
    for text in (b"x", b"y"):
        (tmp_path / "results" / RECORD).write_bytes(text)
        writer.keep((), ATTEMPT)
    found = sorted((tmp_path / "results").glob("*.damaged-*"))
    assert [path.read_bytes() for path in found] == [b"x", b"y"]


def test_a_ledger_that_an_equal_one_was_put_in_place_of_is_gone_on_with(tmp_path: Path) -> None:
    place = tmp_path / "results"
    writer, said = open_new(place)
    shutil.copy(place / LEDGER, tmp_path / "copy")
    os.replace(tmp_path / "copy", place / LEDGER)
    writer.keep((), ATTEMPT)
    assert events(place) == (STARTED, ATTEMPT)
    assert said == []
    with pytest.raises(InputError, match="another mnb is writing to it"):
        open_writer(ResultFolder(place), None)


def test_a_record_of_an_earlier_session_is_written_again_as_well(tmp_path: Path) -> None:
    place = tmp_path / "results"
    first, _ = open_new(place)
    first.keep([(RECORD, b"one")], recorded(RECORD, b"one"))
    first.close()
    again = open_writer(ResultFolder(place), None)
    (place / RECORD).unlink()
    again.keep((), ATTEMPT)
    assert (place / RECORD).read_bytes() == b"one"

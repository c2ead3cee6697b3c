"""The bus: every sink hears everything in order, and one that fails costs nobody else anything."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec
import pytest

from milabench_ng.run.display.json_lines import JsonLines, open_whole
from milabench_ng.run.events import bus as module
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.events.run_events import Note, RunBegins, RunEvent, Stage, Stamped

BEGINS = RunBegins(version="1", run_id="r", session=1, suite="s", batches=1, launches=1, least_s=1.0)


class Memory:
    """Remembers."""

    name = "memory"
    wants: tuple[type[RunEvent], ...] = (RunEvent,)

    def __init__(self) -> None:
        self.told: list[Stamped] = []
        self.closed = False

    def receive(self, stamped: Stamped) -> None:
        self.told.append(stamped)

    def close(self) -> None:
        self.closed = True

    @property
    def stages(self) -> list[str]:
        return [one.event.text for one in self.told if isinstance(one.event, Stage)]

    @property
    def notes(self) -> list[str]:
        return [one.event.text for one in self.told if isinstance(one.event, Note)]


class Raising(Memory):
    """Raises at its third event."""

    name = "raising"

    def receive(self, stamped: Stamped) -> None:
        super().receive(stamped)
        if len(self.told) == 3:
            raise ZeroDivisionError("the planned accident")


class Blocking(Memory):
    """Never comes back from its first event until it is let go."""

    name = "blocking"

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.release = threading.Event()

    def receive(self, stamped: Stamped) -> None:
        super().receive(stamped)
        self.entered.set()
        self.release.wait()


def tell(bus: Bus, count: int) -> list[str]:
    """Publish so many stages; their texts."""
    texts = [f"stage {number}" for number in range(count)]
    for text in texts:
        bus.stage(text)
    return texts


def check_order(memory: Memory) -> None:
    """Numbers without a gap, times that never go back."""
    assert [one.number for one in memory.told] == list(range(len(memory.told)))
    times = [one.time_s for one in memory.told]
    assert times == sorted(times)


def test_all_sinks_hear_everything_in_order_and_are_closed() -> None:
    one, other = Memory(), Memory()
    bus = Bus(one, other)
    texts = tell(bus, 1000)
    bus.close()
    assert one.stages == texts
    assert one.told == other.told
    assert (one.closed, other.closed) == (True, True)
    check_order(one)
    bus.stage("too late")
    assert one.stages == texts


def test_events_of_several_threads_have_one_order() -> None:
    one, other = Memory(), Memory()
    bus = Bus(one, other)
    threads = [threading.Thread(target=tell, args=(bus, 500)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bus.close()
    assert len(one.told) == 2000
    assert one.told == other.told
    check_order(one)


def test_a_sink_that_raises_is_dropped_with_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 3600.0)  # the end does not wait for what a sink that failed will not hear
    memory, raising = Memory(), Raising()
    bus = Bus(raising, memory)
    texts = tell(bus, 100)
    bus.close()
    assert memory.stages == texts
    assert memory.notes == [
        "raising failed (ZeroDivisionError: the planned accident): stopped reporting to it; the run continues"
    ]
    check_order(memory)
    assert len(raising.told) == 3
    assert raising.closed


def test_a_sink_that_blocks_for_ever_is_dropped_when_its_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUED", 50)
    blocking = Blocking()
    bus = Bus(blocking)
    tell(bus, 1)
    blocking.entered.wait()
    tell(bus, 50)
    monkeypatch.undo()
    memory = Memory()
    bus.add(memory)
    texts = tell(bus, 100)
    bus.close()
    assert memory.stages == texts
    (note,) = memory.notes
    assert note.startswith("blocking is ")
    assert len(blocking.told) == 1
    blocking.release.set()


def test_the_end_does_not_wait_for_a_sink_that_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.2)
    memory, blocking = Memory(), Blocking()
    bus = Bus(blocking, memory)
    texts = tell(bus, 10)
    bus.close()  # the suite's time limit is the bound: the sink is still in its first call
    assert not blocking.release.is_set()
    assert memory.stages == texts
    (note,) = memory.notes
    assert note.startswith("blocking was still behind")
    assert memory.closed
    check_order(memory)
    blocking.release.set()


def test_a_full_disk_costs_the_file_and_nothing_else() -> None:
    memory = Memory()
    bus = Bus(JsonLines(Path("/dev/full")), memory)
    bus.publish(BEGINS)
    texts = tell(bus, 100)
    bus.close()
    assert memory.stages == texts
    (note,) = memory.notes
    assert note == (
        "full, which mnb watch and its page read, failed (No space left on device. Free some space): stopped reporting "
        "to it; the run continues"
    )
    check_order(memory)


def test_a_file_begins_with_the_schema_and_a_later_session_appends(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for session in (1, 2):
        bus = Bus(JsonLines(path))
        bus.stage("before the run: not in the file")
        bus.publish(msgspec.structs.replace(BEGINS, session=session))
        bus.note("told")
        bus.close()
    lines = [msgspec.json.decode(line, type=Stamped) for line in path.read_bytes().splitlines()]
    assert [type(line.event) for line in lines] == [RunBegins, Note, RunBegins, Note]
    assert [line.number for line in lines] == [1, 2, 1, 2]
    assert [line.event.session for line in lines[::2]] == [1, 2]  # type: ignore[union-attr]
    assert b'"schema":1' in path.read_bytes().splitlines()[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"one\ntwo\n", b"one\ntwo\n"),
        (b"one\ntw", b"one\n"),
        (b"cut short", b""),
        (b"one\n" + b"x" * 200_000, b"one\n"),
    ],
)
def test_a_line_that_was_cut_short_is_taken_off(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(before)
    with open(open_whole(path), "wb") as file:
        file.write(b"next\n")
    assert path.read_bytes() == after + b"next\n"


def test_a_link_under_the_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("theirs")
    (tmp_path / "events.jsonl").symlink_to(tmp_path / "other")
    memory = Memory()
    bus = Bus(JsonLines(tmp_path / "events.jsonl"), memory)
    bus.publish(BEGINS)
    bus.close()
    assert (tmp_path / "other").read_text() == "theirs"
    assert len(memory.notes) == 1


def test_publishing_waits_for_nobody() -> None:
    blocking = Blocking()
    bus = Bus(blocking)
    tell(bus, 1000)  # a call that waited would never return
    assert len(blocking.told) <= 1
    blocking.release.set()
    bus.close()
    assert len(blocking.told) == 1000


def test_a_sink_is_told_what_it_wants_and_falls_behind_by_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUED", 2)
    notes = Blocking()
    notes.wants = (Note,)
    other = Memory()
    bus = Bus(notes, other)
    bus.note("first")
    assert notes.entered.wait(10)
    for text in ("a", "b", "c"):
        bus.stage(text)
        while text not in other.stages:
            time.sleep(0.001)
    bus.note("last")
    notes.release.set()
    bus.close()
    assert notes.notes == ["first", "last"]

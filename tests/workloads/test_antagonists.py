"""Antagonists: each presses at a rate of its own, for the share of the time that it is told."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from launching import run

from milabench_ng.model.events import Done
from milabench_ng.model.units import MIB
from milabench_ng.records.worker_variables import STORAGE_VARIABLE
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.antagonists import disk_read, disk_write, page_cache, pressing
from milabench_ng.workloads.antagonists.loopback import connection, receive
from milabench_ng.workloads.antagonists.pointer_chase import cycle
from milabench_ng.workloads.antagonists.pressing import Crew, paced

WORKLOADS = builtin_workloads()
SMALL: dict[str, dict[str, Any]] = {
    "disk_read": {"mib": 1, "readers": 1},
    "disk_write": {"mib": 1, "writers": 1},
    "gpu_math": {"side": 32},
    "gpu_stream": {"mib": 1},
    "hogs": {"times": 1},
    "loopback": {"mib": 1},
    "memory_stream": {"mib": 1},
    "page_cache": {"mib": 1},
    "pointer_chase": {"mib": 1},
    "process_storm": {"each": 1},
    "vector_math": {},
}


def test_every_antagonist_is_tried_here() -> None:
    family = "milabench_ng.workloads.antagonists."
    assert {name for name, one in WORKLOADS.items() if one.function.__module__.startswith(family)} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_it_presses_and_leaves_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    channel = run(WORKLOADS[name], 3, **SMALL[name])
    assert channel.one(Done).count > 0
    assert channel.one(Done).count % 3 == 0
    assert list(tmp_path.iterdir()) == []


def test_a_step_of_a_third_is_followed_by_a_pause_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = itertools.accumulate(itertools.repeat(2.0)), []
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    monkeypatch.setattr(pressing.time, "sleep", slept.append)
    steps = paced(1 / 3)
    for _ in range(4):
        next(steps)
    assert slept == pytest.approx([4.0, 4.0])  # none after the first step, which waits for the common start


def test_a_chain_visits_all_places() -> None:
    following = cycle(1000)
    place, seen = 0, set()
    for _ in range(1000):
        seen.add(place)
        place = int(following[place])
    assert (place, len(seen)) == (0, 1000)


def test_a_crew_works_side_by_side_and_tells_what_went_wrong() -> None:
    done: list[int] = []
    with Crew(3, done.append) as crew:
        crew.round()
        crew.round()
    assert sorted(done) == [0, 0, 1, 1, 2, 2]
    with Crew(1, lambda _: 1 // 0) as crew, pytest.raises(ZeroDivisionError):
        crew.round()


def test_files_are_read_and_written_whole(tmp_path: Path) -> None:
    disk_read.write(tmp_path / "a", 2)
    assert disk_read.read(tmp_path / "a") == (tmp_path / "a").stat().st_size == 2 * MIB
    for _ in range(2):
        disk_write.overwrite(tmp_path / "b", b"xyz", 7)
    assert (tmp_path / "b").read_bytes() == b"xyzxyzx"
    (tmp_path / "c").write_bytes(bytes(5))
    assert page_cache.pass_through(tmp_path / "c") == 5


def test_a_connection_carries_all_bytes() -> None:
    sender, receiver = connection()
    sender.sendall(b"12345")
    receive(receiver, bytearray(2), 5)
    sender.close()
    with pytest.raises(ConnectionError, match="has closed"):
        receive(receiver, bytearray(2), 1)
    receiver.close()

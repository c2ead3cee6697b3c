"""Kernel files that stay open."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from milabench_ng.node.held_file import HeldFile, held_if_there, number_of
from tests.run.processes import descriptors

TABLE = b"anon 12\nfile 34\nanon_thp 56\nMemAvailable:     78 kB\n"


def test_numbers_of_a_table() -> None:
    found = {
        name: number_of(TABLE, name) for name in (b"anon", b"file", b"anon_thp", b"MemAvailable:", b"le", b"shmem")
    }
    assert found == {b"anon": 12, b"file": 34, b"anon_thp": 56, b"MemAvailable:": 78, b"le": None, b"shmem": None}
    assert number_of(b"", b"anon") is None


def test_a_read_gives_what_the_file_holds_now(tmp_path: Path) -> None:
    path = tmp_path / "memory.current"
    path.write_text("1\n")
    file = HeldFile(path)
    assert file.read() == b"1\n"
    path.write_text("23\n")
    assert file.read() == b"23\n"


def test_a_file_may_come_later(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "memory.current")
    with pytest.raises(FileNotFoundError):
        file.read()
    assert held_if_there(tmp_path / "memory.current") is None
    (tmp_path / "memory.current").write_text("1\n")
    assert file.read() == b"1\n"
    assert held_if_there(tmp_path / "memory.current") is not None


def test_the_descriptor_is_closed_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "memory.current").write_text("1\n")
    file = HeldFile(tmp_path / "memory.current")
    file.read()
    assert open_names().count(str(tmp_path / "memory.current")) == 1
    del file
    gc.collect()
    assert open_names().count(str(tmp_path / "memory.current")) == 0


def open_names() -> list[str]:
    """What this process has open."""
    return list(descriptors(os.getpid()).values())


def test_a_closed_file_holds_no_descriptor_and_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "number"
    file.write_text("1")
    held = HeldFile(file)
    before = len(os.listdir("/proc/self/fd"))
    assert held.read() == b"1"
    assert len(os.listdir("/proc/self/fd")) == before + 1
    held.close()
    held.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert held.read() == b"1"

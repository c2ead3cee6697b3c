"""Files that a user asks for are whole or not there, and never replace evidence."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.records.output_files import write_output, written

EVIDENCE = ("run.json", "ledger.jsonl", "events.jsonl", "quick.vae.J0.0.20260106-160000-123456.json")


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_is_never_replaced_not_even_through_a_link(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    (tmp_path / "link").symlink_to(name)
    for path in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(InputError, match="never overwritten"):
            write_output(path, b"x", "-o", force=True)
    assert (tmp_path / name).read_text() == "{}"


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_text("old")
    with pytest.raises(InputError, match="the file exists"):
        write_output(path, b"new", "-o")
    write_output(path, b"new", "-o", force=True)
    assert path.read_bytes() == b"new"


def test_an_error_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    def half() -> None:
        with written(tmp_path / "report.txt", "-o") as stream:
            stream.write("half")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"-o .*: No space left on device"):
        write_output(tmp_path / "report.txt", b"x", "-o")
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root, a report on /dev/full must not make a file of it."""
    node = tmp_path / "full"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        node.open("wb").close()
    except PermissionError:
        pytest.skip("needs root, and a file system with devices")
    with pytest.raises(InputError, match="No space left on device"):
        write_output(node, b"x", "-o")
    assert stat.S_ISCHR(node.stat().st_mode)

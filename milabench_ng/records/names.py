"""Every file name of a result folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from datetime import datetime
from pathlib import Path

import msgspec

from milabench_ng.files import open_to_write, opened_folder
from milabench_ng.units import utc_stamp

MANIFEST = "run.json"
LEDGER = "ledger.jsonl"
EVENTS = "events.jsonl"
RECORD_NAME = re.compile(r"(?P<test>[^/\n]+)\.J(?P<job_id>\d+\.\d+[a-z]?)\.(FAIL\.)?\d{8}-\d{6}-\d{6}\.json")
_LOG_NAME = re.compile(r"logs/[^/]+\.log")


class ResultFolder(msgspec.Struct, frozen=True):
    """A result folder: one record a launch, the manifest, the logs."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The manifest."""
        return self.path / MANIFEST

    @property
    def ledger(self) -> Path:
        """What was done to the folder."""
        return self.path / LEDGER

    @property
    def events(self) -> Path:
        """How the run went on, for programs that follow it."""
        return self.path / EVENTS

    @property
    def logs(self) -> Path:
        """Standard output and error of every launch."""
        return self.path / "logs"

    def record(self, test: str, job_id: str, started: datetime, success: bool) -> Path:
        """``standard.vae.J0.0.20260106-160000-123456.json``; ``FAIL`` in the name of a failed one."""
        fail = "" if success else "FAIL."
        return self.path / f"{test}.J{job_id}.{fail}{utc_stamp(started)}.json"

    def log(self, label: str, job_id: str, attempt: int = 1) -> Path:
        """The log of one try of a launch; 0: of its work as company for a neighbour's."""
        again = ".company" if attempt == 0 else f".{attempt}" if attempt > 1 else ""
        return self.logs / f"{label}.J{job_id}{again}.log"


def file_digest(content: bytes) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def temporary_name(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(f".{path.name}.tmp")


def is_result_file(name: str) -> bool:
    """Whether a relative ``name`` is one that a run gives to a file: manifest, ledger, record or log."""
    if not name.isprintable() or name.startswith("."):
        return False
    return name in (MANIFEST, LEDGER) or bool(RECORD_NAME.fullmatch(name) or _LOG_NAME.fullmatch(name))


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name, flush to the disk, rename: the final name never holds half a file."""
    write_temporary(path, content)
    give_name(path)
    sync_folder(path.parent)


def write_temporary(path: Path, content: bytes) -> None:
    """Write under the temporary name of ``path`` and flush to the disk.

    Neither that name nor the folder's own is followed if it is a symbolic link: one under the name is replaced.
    """
    name = temporary_name(path).name
    with opened_folder(path.parent) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)  # a dead writer's
        with open(open_to_write(name, folder, os.O_EXCL), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def give_name(path: Path) -> None:
    """Rename what stands under the temporary name of ``path``; a symbolic link under the final name is replaced."""
    with opened_folder(path.parent) as folder:
        os.replace(temporary_name(path).name, path.name, src_dir_fd=folder, dst_dir_fd=folder)


def sync_folder(path: Path) -> None:
    """Flush a folder's names to the disk."""
    with opened_folder(path) as folder:
        os.fsync(folder)

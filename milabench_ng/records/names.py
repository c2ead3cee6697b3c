"""Every file name of a result folder."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from pathlib import Path

import msgspec

from milabench_ng.units import utc_stamp

MANIFEST = "run.json"
LEDGER = "ledger.jsonl"


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


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name, flush to the disk, rename: the final name never holds half a file."""
    temporary = temporary_name(path)
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush a folder's names to the disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

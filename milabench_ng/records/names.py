"""Every file name of a result folder."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

import msgspec

from milabench_ng.units import utc_stamp

MANIFEST = "run.json"
LEDGER = "ledger.jsonl"
RECORD_NAME = re.compile(r"(?P<test>[^/]+)\.J(?P<job_id>\d+\.\d+)\.(FAIL\.)?\d{8}-\d{6}-\d{6}\.json")
_LOG_NAME = re.compile(r"logs/[^/]+\.log")


class ResultFolder(msgspec.Struct, frozen=True):
    """A result folder: one record a launch, the manifest, the logs."""

    path: Path

    @property
    def manifest(self) -> Path:
        """The manifest."""
        return self.path / MANIFEST

    @property
    def logs(self) -> Path:
        """Standard output and error of every launch."""
        return self.path / "logs"

    def record(self, test: str, job_id: str, started: datetime, success: bool) -> Path:
        """``standard.vae.J0.0.20260106-160000-123456.json``; ``FAIL`` in the name of a failed one."""
        fail = "" if success else "FAIL."
        return self.path / f"{test}.J{job_id}.{fail}{utc_stamp(started)}.json"

    def log(self, label: str, job_id: str) -> Path:
        """The log of one launch."""
        return self.logs / f"{label}.J{job_id}.log"


def is_result_file(name: str) -> bool:
    """Whether a relative ``name`` is one that a run gives to a file: manifest, ledger, record or log."""
    if not name.isprintable() or name.startswith("."):
        return False
    return name in (MANIFEST, LEDGER) or bool(RECORD_NAME.fullmatch(name) or _LOG_NAME.fullmatch(name))


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name, flush to the disk, rename: the final name never holds half a file."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

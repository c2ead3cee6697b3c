"""Every file name of a result folder."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime
from pathlib import Path

import msgspec

from milabench_ng.files import open_to_write, opened_folder
from milabench_ng.units import utc_stamp

MANIFEST = "run.json"


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


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name, flush to the disk, rename: the final name never holds half a file.

    Neither name nor the folder's own is followed if it is a symbolic link: one under the final name is replaced.
    """
    temporary = f".{path.name}.tmp"
    with opened_folder(path.parent) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)  # a dead writer's
        with open(open_to_write(temporary, folder, os.O_EXCL), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)

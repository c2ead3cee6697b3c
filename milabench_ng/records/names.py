"""The file names in a result folder."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
from datetime import datetime
from pathlib import Path

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, open_to_write, opened_folder, read_content
from milabench_ng.model.plain import names_of
from milabench_ng.model.units import utc_stamp

MANIFEST = "run.json"
LEDGER = "ledger.jsonl"
EVENTS = "events.jsonl"
FLEET_MANIFEST = "fleet.json"
"""Of a fleet folder, which holds the result folders of many nodes."""
FLEET_PACKING_LIST = "fleet-bundle.json"
"""Another name than that of a run's bundle: whoever reads one of them does not take the other for it."""
RECORD_NAME = re.compile(r"(?P<test>[^/\n]+)\.J(?P<job_id>\d+\.\d+[a-z]?)\.(FAIL\.)?\d{8}-\d{6}-\d{6}\.json")
RESERVED_BYTES = 256 * 1024
"""Held on the disk for each device of a batch, at least: an hour of slices in its records, and their ledger lines."""
STAMPS = "stamps"
"""Folder of what others vouch for: requests for time stamps on the ledger, and the answers."""
_STAMP_NAME = re.compile(rf"{STAMPS}/[0-9a-f]{{64}}\.(tsq|tsr|txt|txt\.sig)")
LOG_NAME = re.compile(r"logs/[^/]+\.log")
SERIES = "series"
"""Folder of the telemetry of each batch."""
SERIES_NAME = re.compile(rf"{SERIES}/b\d{{1,6}}\.\d{{8}}-\d{{6}}-\d{{6}}\.json\.gz")
_ASIDE_NAME = re.compile(r"(?P<name>[^/]+)\.damaged-[1-9]\d{0,3}")
"""What was found instead of a manifest, ledger or record while the run went on."""


class ResultFolder(msgspec.Struct, frozen=True):
    """A result folder: one record per launch, the manifest, the logs."""

    path: Path

    @property
    def manifest(self) -> Path:
        return self.path / MANIFEST

    @property
    def ledger(self) -> Path:
        """The ledger: what was done to the folder."""
        return self.path / LEDGER

    @property
    def events(self) -> Path:
        """The run's events, for programs that follow it."""
        return self.path / EVENTS

    @property
    def logs(self) -> Path:
        """Standard output and error of every launch."""
        return self.path / "logs"

    def record(self, test: str, job_id: str, started: datetime, success: bool) -> Path:
        """``standard.vae.J0.0.20260106-160000-123456.json``; a failed one has ``FAIL`` in its name."""
        fail = "" if success else "FAIL."
        return self.path / f"{test}.J{job_id}.{fail}{utc_stamp(started)}.json"

    def log(self, label: str, job_id: str, attempt: int = 1) -> Path:
        """The log of one attempt of a launch; 0: of its work as company for a neighbour."""
        again = ".company" if attempt == 0 else f".{attempt}" if attempt > 1 else ""
        return self.logs / f"{label}.J{job_id}{again}.log"


def file_digest(content: bytes) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def whole_content(path: Path, sha256: str, largest: int = LARGE) -> bytes | None:
    """The content of the regular file ``path``, which is no link, if it has this digest and at most ``largest`` bytes.

    None if it has not.
    """
    try:
        content = read_content(path, largest, os.O_NOFOLLOW)
    except InputError:
        return None
    return content if file_digest(content) == sha256 else None


def instead_of(folder: Path, usual: str) -> str:
    """What to name instead of a folder that is no run itself: the runs in it or, if there are none, the ``usual``."""
    below = [str(path.parent) for path in sorted(folder.glob(f"*/{MANIFEST}"))] if os.path.isdir(folder) else []
    return f"Name a run in it: {names_of(below)}" if below else usual


def temporary_name(path: Path) -> Path:
    """Where a file is written before it gets its final name."""
    return path.with_name(f".{path.name}.tmp")


def set_aside_name(path: Path) -> str:
    """The first free of the names for what is found under that of ``path``, and is not what was written there."""
    names = (f"{path.name}.damaged-{number}" for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(path.with_name(name)))


def is_result_file(name: str) -> bool:
    """Whether a relative ``name`` is one of a run's files: manifest, ledger, record, log, series or time stamp.

    So is what was found damaged and set aside.
    """
    if not name.isprintable() or name.startswith("."):
        return False
    aside = _ASIDE_NAME.fullmatch(name)
    own = aside["name"] if aside else name
    if own in (MANIFEST, LEDGER) or RECORD_NAME.fullmatch(own):
        return True
    return any(form.fullmatch(name) for form in (LOG_NAME, SERIES_NAME, _STAMP_NAME))


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name, flush to disk, rename: the final name never holds a partial file."""
    write_temporary(path, content)
    give_name(path)
    sync_folder(path.parent)


def write_temporary(path: Path, content: bytes) -> None:
    """Write under the temporary name of ``path`` and flush to disk.

    Neither that name nor the folder is followed if it is a symbolic link; a link under the name is replaced.
    """
    name = temporary_name(path).name
    with opened_folder(path.parent) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)  # a dead writer's
        try:
            with open(open_to_write(name, folder, os.O_EXCL), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # a full disk
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise


def give_name(path: Path) -> None:
    """Rename the temporary file of ``path``; a symbolic link under the final name is replaced."""
    with opened_folder(path.parent) as folder:
        os.replace(temporary_name(path).name, path.name, src_dir_fd=folder, dst_dir_fd=folder)


def sync_folder(path: Path) -> None:
    """Flush a folder's names to disk."""
    with opened_folder(path) as folder:
        os.fsync(folder)

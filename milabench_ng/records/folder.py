"""Reading an untrusted result folder, once, into one value."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, read_content, require_folder
from milabench_ng.model.plain import plain
from milabench_ng.model.units import MIB
from milabench_ng.records.ledger import Chain, Recorded, contradictions
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.names import FLEET_MANIFEST, LEDGER, MANIFEST, temporary_name
from milabench_ng.records.reading import (
    Found,
    Problem,
    Read2020,
    ReadManifest,
    ReadRecord,
    decoded_size,
    is_going_on,
    problem,
    read_ledger,
    read_record,
    record_content,
    why_no_file,
)


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A result folder as it was read: reports, pages and verification take its launches from here."""

    source: str
    """What the user calls it."""
    records: tuple[ReadRecord | Read2020, ...] = ()
    """In the order of their names."""
    manifests: tuple[ReadManifest, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Files that should be records, and folders, that cannot be read."""
    ledger: Chain = Chain()
    """Empty if there is none."""
    going_on: bool = False
    altered: tuple[str, ...] = ()
    """What its ledger proves to be changed since it was written: lines of its own, and records."""
    gone: tuple[str, ...] = ()
    """The records that its ledger names and that are not there; none while a run that goes on may still name some."""

    @property
    def manifest(self) -> Manifest | None:
        """Its own; those of folders below it are no part of it."""
        return next((one.manifest for one in self.manifests if one.file == MANIFEST), None)

    @property
    def contradicted(self) -> tuple[str, ...]:
        """What breaks R13: what is ``altered``, and the records that are ``gone``."""
        return (*self.altered, *(f"{file}: recorded, and not there" for file in self.gone))


class Bounds(msgspec.Struct, frozen=True):
    """How much the records of a folder may take together, in bytes: their files, and decoded."""

    files: float = math.inf
    decoded: float = math.inf

    def exceeded(self, files: int, decoded: int) -> str:
        """Which of them so many bytes exceed, in words; empty for none."""
        if files > self.files:
            return f"the records of the folder hold more than {self.files / MIB:.0f} MiB"
        if decoded > self.decoded:
            return f"the records of the folder would take more than {self.decoded / MIB:.0f} MiB of memory"
        return ""


UNBOUNDED = Bounds()


def read_folder(folder: Path, source: str = "", *, within: Bounds = UNBOUNDED, changed: Collection[str] = ()) -> Folder:
    """Read everything below ``folder`` that says something of launches.

    As in 2020, a record is any ``*.json`` whose ``job_id`` is not null and that is not a ``sub_job``; other JSON files
    are skipped. ``source``: what the user calls it; ``changed``: files that are not what their packing list says, and
    therefore are not read. Raises InputError for a manifest that cannot be read: nobody can say what was planned.
    """
    source = source or plain(folder)
    if os.path.lexists(folder / FLEET_MANIFEST):
        raise InputError(not_one_node(source))
    going_on = is_going_on(folder)  # asked first, so that launches that end while we read are merely pending
    found = tuple(_read_files(folder, within, changed))
    problems = tuple(one for one in found if isinstance(one, Problem))
    for one in problems:
        if os.path.basename(one.file) == MANIFEST:
            raise InputError(_why_unread(source, folder, one))
    ledger = read_ledger(folder)
    files = {one.file for one in found}
    named = (event.file for event in ledger.events if isinstance(event, Recorded) and event.file not in files)
    # A record gets its name after its line in the ledger.
    gone = () if going_on else (file for file in named if not os.path.lexists(temporary_name(folder / file)))
    return Folder(
        source=source,
        records=tuple(one for one in found if isinstance(one, ReadRecord | Read2020)),
        manifests=tuple(one for one in found if isinstance(one, ReadManifest)),
        problems=problems,
        ledger=ledger,
        going_on=going_on,
        altered=tuple(_altered(folder, ledger, found)),
        gone=tuple(gone),
    )


def _altered(folder: Path, chain: Chain, found: Iterable[Found]) -> Iterator[str]:
    """Where ledger and records contradict each other; a record that is gone is a failed launch, and counted as one."""
    if not os.path.lexists(folder / LEDGER):
        return
    noted: dict[str, str | None] = {event.file: None for event in chain.events if isinstance(event, Recorded)}
    sums = noted | {one.file: one.sha256 if isinstance(one, ReadRecord) else None for one in found}
    yield from (f"{LEDGER}: {one}" for one in chain.problems)
    yield from contradictions(chain, sums)


def not_one_node(source: str) -> str:
    """What to tell whoever gives a fleet where the results of one node are wanted."""
    return (
        f"{source}: a fleet, and this takes the results of one node, such as nodes/NODE/screen.tar.gz or "
        "nodes/NODE/screen in it. The whole fleet goes into mnb report, mnb verify and mnb accept BID FLEET"
    )


def _why_unread(source: str, folder: Path, manifest: Problem) -> str:
    """What to tell of a manifest that cannot be read: the folder's own, or one somewhere below it."""
    if os.path.lexists(folder / MANIFEST):
        return f"{source}: {manifest.file}: {manifest.reason}. Without it, it is unknown what was planned"
    return (
        f"{source}: not a result folder: it has no run.json. Give the folder that `mnb jobs` wrote (found "
        f"{manifest.file}, {manifest.reason})"
    )


def _read_files(folder: Path, within: Bounds, changed: Collection[str]) -> Iterator[Found]:
    require_folder(folder, "Give the result folder of a run")
    paths, unseen = _json_files(str(folder))
    yield from unseen
    files = decoded = 0
    for path in paths:
        name = os.path.relpath(path, folder)
        of_run = os.path.basename(name) == MANIFEST
        try:
            content = read_content(Path(path), LARGE, os.O_NOFOLLOW) if of_run else record_content(Path(path))
        except InputError as error:
            yield problem(name, why_no_file(path, error))
            continue
        if not of_run:
            files, decoded = files + len(content), decoded + decoded_size(content)
            if why := "it was changed after it was packed" if name in changed else within.exceeded(files, decoded):
                yield problem(name, f"not a readable record: {why}")
                continue
        found = read_record(content, name)
        if found is not None:
            yield found


def _json_files(folder: str) -> tuple[list[str], list[Problem]]:
    """The files to read below ``folder``, in order, and problems with folders in it that cannot be read.

    Raises InputError where that is ``folder`` itself: nothing is known then, not even that there is a launch.
    """
    paths: list[str] = []
    unseen: list[Problem] = []
    folders = [folder]
    while folders:
        parent = folders.pop()
        try:
            with os.scandir(parent) as entries:
                for entry in entries:
                    if entry.name.endswith(".json") and not entry.name.startswith("."):
                        paths.append(entry.path)
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError as error:
            if parent == folder:
                raise InputError(f"{plain(folder)}: {error.strerror or error}") from None
            unseen.append(problem(os.path.relpath(parent, folder), error.strerror or str(error)))
    return sorted(paths), unseen

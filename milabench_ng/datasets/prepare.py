"""Find a dataset below the data root, or generate it there atomically."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import numpy
import PIL
import PIL.features

from milabench_ng.datasets import manifest as manifests
from milabench_ng.datasets.base import DataSet, Progress, Size
from milabench_ng.datasets.conversion import convert_real, convert_twin, current
from milabench_ng.datasets.manifest import TwinManifest
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import nearest, why_unwritable
from milabench_ng.model.units import GIB
from milabench_ng.records.proof import DataProof

SEED = 20200801
"""The same on all nodes: figures are comparable only on the same data."""
NAMED = 3
"""How many differing files are named."""


class FoundDataset(msgspec.Struct, frozen=True):
    """Where a dataset is, and what it is. `manifest` is None unless it was generated."""

    path: Path
    kind: Literal["twin", "classic", "real", "absent"]
    manifest: TwinManifest | None = None


def locate(data_set: DataSet, dataroot: Path, scale: float) -> FoundDataset:
    """What is in the place of `data_set` at `scale`: with a manifest a twin, without one possibly the real set.

    Twins at scale 1 and real sets are at `dataroot/<folder>`, others at `dataroot/scale-<scale>/<folder>`.
    Raises InputError for a scale outside ]0, 1] and for a manifest that cannot be read.
    """
    if not 0 < scale <= 1:
        raise InputError(
            f"data scale {scale:g} was asked for; expected a value above 0 and at most 1 (1 is the full size)"
        )
    full = scale == 1 or not data_set.scalable
    place = dataroot / data_set.folder if full else dataroot / f"scale-{scale:g}" / data_set.folder
    manifest = manifests.read(place)
    if manifest is not None:
        if manifest.name != data_set.name:
            raise InputError(f"{place} contains the dataset {manifest.name}, not {data_set.name}. Move it away")
        return FoundDataset(place, manifest.kind, manifest)
    return FoundDataset(place, "real" if place.is_dir() and data_set.looks_real(place) else "absent")


def prepare(data_set: DataSet, dataroot: Path, scale: float, progress: Progress, processes: int) -> FoundDataset:
    """Make sure that `data_set` exists: use the existing one, or generate the twin with `processes` processes.

    A real set's texts are converted once, next to them. A twin of another generator version is replaced. Several
    callers may do this at once: one generates, the others wait for it. An interrupted preparation leaves no loadable
    set; leftovers of a killed one are removed here. Existing files are not read: `check` and `read_again` do that.
    `progress` runs in the caller's thread. Raises InputError if the disk is too small or not writable, or if something
    else is in the set's place.
    """
    located = locate(data_set, dataroot, scale)
    place = located.path
    if usable(data_set, located) and not _leftovers(data_set, place.parent):
        return located
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(place.parent / f".mnb-{data_set.name}.lock"):
            for leftover in _leftovers(data_set, place.parent):
                shutil.rmtree(leftover)
            located = locate(data_set, dataroot, scale)
            if located.kind == "real" and not usable(data_set, located):
                convert_real(data_set, place, progress, processes)
            elif not usable(data_set, located):
                _require_space(data_set, place, scale)
                _generate(data_set, place, scale if data_set.scalable else 1.0, progress, processes)
            return locate(data_set, dataroot, scale)
    except OSError as error:
        raise InputError(
            f"cannot {'convert' if located.kind == 'real' else 'generate'} {data_set.name} in {place}: "
            f"{error.strerror or error}. "
            "Choose a data root that can be written and has space"
        ) from error


def to_generate(data_set: DataSet, dataroot: Path, scale: float) -> Size | None:
    """What must be generated before `data_set` can be read, with bytes as on disk; None if it exists."""
    located = locate(data_set, dataroot, scale)
    if located.kind == "real" or usable(data_set, located):
        return None
    size = data_set.size(scale)
    return Size(size.files, _on_disk(size), size.core_seconds)


def free_bytes(dataroot: Path) -> int:
    """Free bytes where `dataroot` is, or would be made."""
    return shutil.disk_usage(nearest(dataroot)).free


def require_writable(dataroot: Path, absent: Iterable[str]) -> None:
    """Raise InputError if nothing can be made in `dataroot`, where the datasets `absent` have to be."""
    there = nearest(dataroot)
    if why := why_unwritable(there):
        raise InputError(
            f"{', '.join(absent)} must be generated in {dataroot}, but {there} is not writable ({why}). "
            "Choose another data root with -d"
        )


def check(located: FoundDataset) -> None:
    """Compare a twin's files and bytes with its manifest; quick, for each run. Raises InputError if they differ."""
    if located.kind == "absent":
        raise InputError(f"no dataset in {located.path}. Run mnb prepare first")
    if located.manifest is None:
        return
    sizes = [entry.stat(follow_symlinks=False).st_size for entry in manifests.files(located.path)]
    promised = located.manifest
    if (len(sizes), sum(sizes)) != (promised.files, promised.bytes):
        raise InputError(
            f"{located.path} is damaged: {len(sizes)} files of {sum(sizes)} bytes, its manifest says "
            f"{promised.files} files of {promised.bytes} bytes. Delete it, and mnb generates it again"
        )


def read_again(data_set: DataSet, located: FoundDataset, scale: float, progress: Progress, threads: int) -> DataProof:
    """Read every byte of a dataset, and compare a twin's with its listing and checksum."""
    began = time.monotonic()
    changed_s = max((one.stat(follow_symlinks=False).st_ctime for one in manifests.files(located.path)), default=0.0)
    found = manifests.digest(located.path, threads, progress)
    checksum, promised = manifests.checksum(found), located.manifest
    differing: tuple[str, ...] = ()
    if promised is not None and checksum != promised.checksum:
        listed = manifests.read_listing(located.path)
        differing = tuple(sorted({entry.path for entry in set(found) ^ set(listed)})) or (manifests.LISTING,)
    return DataProof(
        name=data_set.name,
        scale=scale if promised is None else promised.scale,
        checksum=checksum,
        generator=promised.generator if promised else None,
        libraries=promised.libraries if promised else {},
        files=len(found),
        bytes=sum(entry.size for entry in found),
        changed_s=changed_s,
        differing=differing[:NAMED],
        seconds=time.monotonic() - began,
    )


def usable(data_set: DataSet, located: FoundDataset) -> bool:
    """Whether it can be read as it is: a real set, or a twin of this generator version."""
    manifest = located.manifest
    if located.kind == "real":
        return current(data_set, located.path)
    return manifest is not None and manifest.generator == data_set.version


def _generate(data_set: DataSet, place: Path, scale: float, progress: Progress, processes: int) -> None:
    if place.exists() and manifests.read(place) is None and any(place.iterdir()):
        raise InputError(
            f"{place} is neither a synthetic dataset (it has no {manifests.MANIFEST}) nor a complete real "
            f"{data_set.name}. Complete it, move it away, or choose another data root"
        )
    temporary = place.parent / f".mnb-{data_set.name}-{os.getpid()}"
    temporary.mkdir()
    try:
        data_set.generate(temporary, scale, SEED, progress, processes)
        convert_twin(data_set, temporary, progress, processes)
        manifests.write(temporary, _seal(data_set, temporary, scale, processes))
        _sync(temporary)
        _put(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # the rest is removed at the next start


def _seal(data_set: DataSet, place: Path, scale: float, processes: int) -> TwinManifest:
    entries = manifests.digest(place, processes)
    manifests.write_listing(place, entries)
    return TwinManifest(
        name=data_set.name,
        kind=data_set.kind,
        seed=SEED,
        generator=data_set.version,
        scale=scale,
        files=len(entries),
        bytes=sum(entry.size for entry in entries),
        checksum=manifests.checksum(entries),
        libraries={
            "numpy": numpy.__version__,
            "pillow": PIL.__version__,
            "libjpeg": PIL.features.version("libjpeg_turbo") or f"libjpeg {PIL.features.version('jpg')}",
            **data_set.libraries(),
        },
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _put(temporary: Path, place: Path) -> None:
    """Rename the finished set; a twin that it replaces gets a temporary name and is removed."""
    if place.exists():
        old = temporary.with_name(f"{temporary.name}-old")
        place.rename(old)
        temporary.rename(place)
        shutil.rmtree(old)
    else:
        temporary.rename(place)
    _sync(place.parent)


def _sync(folder: Path) -> None:
    """Flush the file system of `folder` (syncfs(2)): one call instead of an fsync for each of 100,000 files."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)


def _leftovers(data_set: DataSet, folder: Path) -> list[Path]:
    """Temporary folders of generators; all of them dead if the caller holds the lock."""
    pattern = re.compile(rf"\.mnb-{re.escape(data_set.name)}-\d+(-old)?")
    return [path for path in folder.iterdir() if pattern.fullmatch(path.name)] if folder.is_dir() else []


def _on_disk(size: Size) -> int:
    """Bytes including an inode and a half-filled last block for each file."""
    return size.bytes + 4096 * size.files


def _require_space(data_set: DataSet, place: Path, scale: float) -> None:
    needed = _on_disk(data_set.size(scale))
    free = free_bytes(place.parent)
    if free < needed:
        raise InputError(
            f"{data_set.name} at scale {scale:g} needs {needed / GIB:.1f} GiB below {place.parent}, where only "
            f"{free / GIB:.1f} GiB are free. Free some space, choose another data root, or use a smaller data scale"
        )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Lock `path` exclusively (flock(2)); the last holder removes the file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is(descriptor, path):
            break
        os.close(descriptor)  # its holder removed it while we waited
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False

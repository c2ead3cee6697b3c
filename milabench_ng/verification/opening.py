"""Opens untrusted bundles: extracts only expected files, of bounded size, into an empty folder.

A result folder that was packed with what is named after it, as nodes of a fleet send theirs, is opened like a bundle.

Refused are unexpected names (and therefore paths that lead elsewhere), links, devices and sparse files, duplicate
names, bytes after the archive, and archives that are larger, or compress better, than results do.
"""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, TypeVar

import msgspec

from milabench_ng.analysis.summary.folder import load, load_baseline, summary_of
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import GZIP, in_words, meant_beside, parse_json
from milabench_ng.model.known_files import named
from milabench_ng.model.plain import plain, quoted
from milabench_ng.model.units import MIB
from milabench_ng.records.folder import UNBOUNDED, Bounds, Folder, not_one_node, read_folder
from milabench_ng.records.names import EVENTS, FLEET_PACKING_LIST, is_result_file
from milabench_ng.records.origin import newer
from milabench_ng.verification.bundle import (
    BUNDLE_SCHEMA,
    PACKING_LIST,
    RESULTS,
    SIGNATURE,
    WEIGHTS,
    PackingList,
    damage,
    is_member,
    of_suite,
    sum_of,
)
from milabench_ng.verification.folder_files import result_files

FOREIGN = Bounds(files=256 * MIB, decoded=768 * MIB)
"""Of somebody else's records: a day of slices of ten tenants. Decoded, slices take twice their text."""
MAX_FILE = 1 << 28
MAX_BYTES = 1 << 32
MAX_FILES = 100_000
MAX_RATIO = 200
"""Unpacked over packed size. Records compress about tenfold."""
_FREE_OF_RATIO = 1 << 24
"""Unpacked size below which the ratio is not checked: a short log may repeat itself."""
_HEADERS = 1 << 16
"""More bytes than the headers of one member take."""
_BLOCK = 1 << 20
_PACKED_BLOCK = 1 << 16
"""What is not unpacked of a block yet is copied at each read."""
_AGAIN = "Ask for it again, as `mnb bundle` made it"
T = TypeVar("T")
_DAMAGED = (tarfile.TarError, EOFError, ValueError)
Belonging = Callable[[str], Callable[[str], bool]]
"""Which names belong in an archive, by the one that it begins with."""
_OF_FOLDER = re.compile(r"(?P<folder>[a-z0-9-]{1,64})(/.+|\.log|\.summary\.json)")
"""A name in the archive of a folder, and beside it what its run printed, and its summary."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A result folder that was read, and what came with it."""

    place: Path
    """Where its files lie, until the context ends."""
    folder: Folder
    summary: Summary
    names: tuple[str, ...]
    """The files that belong to the folder."""
    foreign: tuple[str, ...] = ()
    """Those that do not."""
    packing: PackingList | None = None
    """None for a plain folder."""
    packing_bytes: bytes = b""
    signature: bytes | None = None
    damage: tuple[str, ...] = ()
    """What of a bundle is not as it was packed."""
    scales: tuple[Path, ...] = ()
    """The files of weights and references that came with the bundle."""

    @property
    def source(self) -> str:
        """What the user calls it."""
        return self.folder.source

    @property
    def altered(self) -> tuple[str, ...]:
        """What is not as it was packed or, if that is nothing, as the run wrote it."""
        return self.damage or self.folder.altered

    @property
    def weights(self) -> dict[str, Path]:
        """The files of weights that came with the bundle, by suite."""
        came = {path.name: path for path in self.scales}
        named = {suite: of_suite(WEIGHTS, suite, self.summary) for suite in self.summary.known_suites}
        return {suite: came[name] for suite, name in named.items() if name in came}


@contextmanager
def opened(source: Path, within: Bounds = FOREIGN) -> Iterator[Opened]:
    """Yield the result folder ``source``, or that in the archive ``source``, unpacked until the context ends.

    ``within``: how much its records may take; those of a bundle never more than FOREIGN.
    """
    if os.path.isdir(source):
        yield _opened_folder(source, source, within)
        return
    if not os.path.isfile(source):
        meant = meant_beside(source) or ". Give a bundle, or the result folder of a run"
        raise InputError(f"{plain(source)}: no such folder or bundle{meant}")
    if first_name(source) == FLEET_PACKING_LIST:
        raise InputError(not_one_node(plain(source)))
    if not is_bundle(source) and (what := named(source)):
        raise InputError(f"{plain(source)}: this is {what}. Give a bundle or a result folder, which have the records")
    with unpacked(source, _belonging) as root:
        packed = _packed_folder(root)
        yield _opened(source, root) if packed is None else _opened_folder(source, packed, FOREIGN)


@contextmanager
def unpacked(source: Path, belonging: Belonging) -> Iterator[Path]:
    """The files of an untrusted archive, in a folder until the context ends."""
    with tempfile.TemporaryDirectory(prefix="mnb-bundle-") as place:
        root = Path(place)
        try:
            _extract(source, root, belonging)
        except _CorruptError as error:
            raise InputError(f"{source}: damaged: {error}. {_AGAIN}") from None
        except InputError as error:
            raise InputError(f"{source}: refused: {error}. {_AGAIN}") from None
        except (*_DAMAGED, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # not the archive's fault
                where = f"{source}: cannot be unpacked in {root.parent}: {error.strerror}"
                raise InputError(f"{where}. Set TMPDIR to a folder with room") from None
            raise InputError(f"{source}: not a bundle made by `mnb bundle`: {error}. {_AGAIN}") from None
        yield root


def load_source(name: str) -> Summary:
    """The summary of a bundle, or of anything that `load_baseline` reads."""
    return load_result(Path(name)) if is_folder_or_bundle(Path(name)) else load_baseline(name)


def load_result(source: Path) -> Summary:
    """The summary of a bundle, or of anything that `load` reads. Raises InputError for what was altered."""
    if not is_folder_or_bundle(source):
        return load(source)
    with opened(source, FOREIGN if is_bundle(source) else UNBOUNDED) as there:
        if there.altered:
            what = f"{there.source}: damaged: {there.altered[0]}. Do not trust its numbers"
            raise InputError(f"{what}. For all of it, run mnb verify {quoted(source)}")
        return there.summary


def is_folder_or_bundle(source: Path) -> bool:
    """Whether there are records in it, and not only statistics."""
    return os.path.isdir(source) or is_bundle(source)


def is_bundle(path: Path) -> bool:
    """Whether it is a compressed file."""
    if not os.path.isfile(path):
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(GZIP)) == GZIP
    except OSError:  # it may not be read: whoever reads it as a summary says so
        return False


def decode_packing(content: bytes, kind: type[T], where: str) -> T:
    """An untrusted packing list of a ``kind`` of bundle. Raises InputError for anything else."""
    try:
        return msgspec.convert(parse_json(content, where), kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {in_words(error)}") from None


def _packed_folder(root: Path) -> Path | None:
    """The folder that was packed without a packing list, though with what is named after it; None for a bundle."""
    if (root / PACKING_LIST).exists():
        return None
    return next((one for one in root.iterdir() if one.is_dir() and f"{one.name}/" != RESULTS), None)


def _opened_folder(source: Path, place: Path, within: Bounds) -> Opened:
    names, foreign = result_files(place)
    folder = read_folder(place, plain(source), within=within)
    return Opened(place=place, folder=folder, summary=summary_of(folder), names=names, foreign=foreign)


def _opened(source: Path, root: Path) -> Opened:
    listed, signature = root / PACKING_LIST, root / SIGNATURE
    if not listed.is_file():
        raise InputError(f"{source}: no {PACKING_LIST} in it. Make bundles with `mnb bundle`")
    content = listed.read_bytes()
    packing = decode_packing(content, PackingList, f"{source}: {PACKING_LIST}")
    if packing.schema > BUNDLE_SCHEMA:
        raise InputError(f"{source}: {newer('bundle', packing.schema, BUNDLE_SCHEMA)}")
    place = root / RESULTS
    place.mkdir(exist_ok=True)
    names, foreign = result_files(place)
    scales = tuple(sorted(path for path in root.glob("*.json") if path != listed))
    sums = {f"{RESULTS}{name}": sum_of(place / name) for name in names} | {path.name: sum_of(path) for path in scales}
    changed = {name.removeprefix(RESULTS) for name, one in sums.items() if packing.files.get(name, one) != one}
    folder = read_folder(place, plain(source), within=FOREIGN, changed=changed)
    return Opened(
        place=place,
        folder=folder,
        summary=summary_of(folder),
        names=names,
        foreign=foreign,
        packing=packing,
        packing_bytes=content,
        signature=signature.read_bytes() if signature.is_file() else None,
        damage=tuple(damage(packing.files, sums)),
        scales=scales,
    )


class _CorruptError(InputError):
    """The bytes of an archive are not those that were packed, as after a bad transfer."""


class _Meted:
    """Unzips no more than allowed, so that a short archive cannot fill memory or disk."""

    def __init__(self, file: BinaryIO, packed: int) -> None:
        self._file = file
        self._unzipper = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._packed = packed
        self._allowed = 0
        self._total = 0
        self._used = 0

    def allow(self, size: int) -> None:
        self._allowed = size

    def read(self, size: int) -> bytes:
        content = self._unzipped(size)
        if used := content.rstrip(b"\0"):
            self._used = self._total + len(used)
        self._allowed -= len(content)
        self._total += len(content)
        if self._allowed < 0:
            raise _CorruptError("its headers are larger than those of a bundle")
        if self._total > MAX_BYTES:
            raise InputError(f"it holds more than {MAX_BYTES} bytes")
        if self._total > max(_FREE_OF_RATIO, MAX_RATIO * self._packed):
            raise InputError(f"it unpacks to more than {MAX_RATIO} times its size")
        return content

    def require_end(self, end: int) -> None:
        """Raise InputError if anything but zeros comes after the byte ``end``, or anything after the zipped stream."""
        while self.read(_BLOCK):
            pass
        if self._used > end or self._unzipper.unused_data or self._file.read(1):
            raise InputError("there are bytes after its archive")

    def _unzipped(self, size: int) -> bytes:
        content = b""
        while not content and not self._unzipper.eof:
            packed = self._unzipper.unconsumed_tail or self._file.read(_PACKED_BLOCK)
            try:
                content = self._unzipper.decompress(packed, size)
            except zlib.error:
                raise _CorruptError("its content cannot be unpacked") from None
            if not packed and not content:
                raise EOFError("it is cut short")
        return content


def first_name(source: Path) -> str:
    """The name with which an archive begins; empty for anything else."""
    try:
        with closing(_members(source, lambda _: lambda _: True)) as members:
            return next((member.name for member, _ in members), "")
    except (*_DAMAGED, InputError, OSError):
        return ""


def _extract(source: Path, root: Path, belonging: Belonging) -> None:
    """Unpack the untrusted archive ``source`` into the empty folder ``root``.

    Raises InputError for what is refused, and what tarfile and zlib raise for what is damaged.
    """
    with closing(_members(source, belonging)) as members:
        for member, content in members:
            _write(member, content, root / member.name)


def beginning(source: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The files of these names with which the untrusted archive ``source`` begins; the rest is not unpacked.

    Raises InputError for what is refused or damaged.
    """
    found: dict[str, bytes] = {}
    try:
        with closing(_members(source, _belonging)) as members:
            for member, content in members:
                if member.name not in wanted:
                    break
                found[member.name] = content.read()
                if len(found) == len(wanted):
                    break
    except (*_DAMAGED, _CorruptError) as error:
        raise InputError(f"its archive is damaged: {error}") from None
    return found


def _members(source: Path, belonging: Belonging) -> Generator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """The files of an archive, each checked before it is unpacked, and at the end that nothing follows."""
    seen: set[str] = set()
    end = 0
    with source.open("rb") as file:
        begun = file.read(len(GZIP))
        if not begun:
            raise tarfile.ReadError("it is empty")
        if begun != GZIP:
            raise tarfile.ReadError("it is not compressed by gzip (a summary cannot be verified)")
        file.seek(0)
        meted = _Meted(file, source.stat().st_size)
        meted.allow(_HEADERS)
        belongs: Callable[[str], bool] | None = None
        with tarfile.open(fileobj=meted, mode="r|") as archive:  # type: ignore[call-overload]  # read() is enough
            for member in archive:
                belongs = belongs or belonging(member.name)
                _check(member, seen, belongs)
                meted.allow(member.size + _HEADERS)
                yield member, archive.extractfile(member)
                end = member.offset_data + member.size
                meted.allow(_HEADERS)
        meted.require_end(end)


def _belonging(first: str) -> Callable[[str], bool]:
    """Which names belong in an archive that begins with ``first``: those of a bundle, or of one packed folder."""
    found = None if is_member(first) else _OF_FOLDER.fullmatch(first)
    return is_member if found is None else partial(_is_of_folder, found["folder"])


def _is_of_folder(folder: str, name: str) -> bool:
    inner = name.removeprefix(f"{folder}/")
    if inner == name:
        return name in (f"{folder}.log", f"{folder}.summary.json")
    return is_result_file(inner) or inner == EVENTS


def _check(member: tarfile.TarInfo, seen: set[str], belongs: Callable[[str], bool]) -> None:
    """Raise InputError unless ``member`` belongs in the archive."""
    name = member.name
    if not member.isreg() or member.issparse():
        raise InputError(f"{name!r} is not a regular file (a link, a folder, a device or a sparse file)")
    if not belongs(name):
        raise InputError(f"{name!r} is not a file of a bundle")
    if name in seen:
        raise InputError(f"{name!r} is in it twice")
    if member.size > MAX_FILE:
        raise InputError(f"{name!r} has {member.size} bytes; at most {MAX_FILE}")
    seen.add(name)
    if len(seen) > MAX_FILES:
        raise InputError(f"it holds more than {MAX_FILES} files")


def _write(member: tarfile.TarInfo, content: IO[bytes], path: Path) -> None:
    """Write one new file. Its name has been checked, so that its folder is a known one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        while block := content.read(_BLOCK):
            file.write(block)
    if path.stat().st_size != member.size:
        raise InputError(f"{member.name!r} is cut short")

"""The code of this process as it lies on disk: mnb's own files, and all distributions that it computes with."""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import Distribution, distributions
from pathlib import Path

import msgspec

import milabench_ng
from milabench_ng.model.sources import loaded_elsewhere, package_digests
from milabench_ng.records.proof import CodeProof, WheelCheck

PACKAGE = Path(milabench_ng.__file__).parent
OWN = "milabench-ng"
"""This distribution; its rooms are compared instead, since a checkout has no RECORD."""
NAMED = 3
"""How many differing files of a distribution are named, and how many that belong to none."""


class Installed(msgspec.Struct, frozen=True):
    """A distribution as its RECORD tells it, which others than Python's installers leave out, or do not keep to."""

    name: str
    """As PEP 503 writes it."""
    metadata: Distribution
    root: str
    """The folder of the import path in which it lies."""
    files: frozenset[str]
    """All that RECORD names."""
    sums: dict[str, str]
    """``algorithm=sum`` (PEP 376), of those that have one."""
    code: dict[str, str]
    """``algorithm=sum,size`` of its Python files and libraries with a sum, by the paths that the kernel shows."""


class _CondaFile(msgspec.Struct, frozen=True):
    path: str = msgspec.field(name="_path")
    sha256: str = ""
    sha256_in_prefix: str = ""


class _CondaPaths(msgspec.Struct, frozen=True):
    paths: tuple[_CondaFile, ...] = ()


class _CondaPackage(msgspec.Struct, frozen=True):
    paths_data: _CondaPaths = _CondaPaths()


def inspect_code(only: Collection[str] | None, largest: int | None) -> CodeProof:
    """The code of this process; what it loads is compared with its RECORD, or of that ``only`` what is named.

    Of files that have more than ``largest`` bytes, if that is not None, only the size is compared.
    """
    began = time.monotonic()
    wheels, strays = check_wheels(loaded_files(), only, largest)
    return CodeProof(
        package=package_digests(PACKAGE),
        elsewhere=loaded_elsewhere(PACKAGE),
        wheels=wheels,
        strays=strays,
        base=sys.base_prefix,
        prefix=sys.prefix,
        folder=str(PACKAGE.parent),
        seconds=time.monotonic() - began,
    )


def check_wheels(
    loaded: frozenset[str], only: Collection[str] | None = None, largest: int | None = None
) -> tuple[dict[str, WheelCheck | None], tuple[str, ...]]:
    """Compare what mnb requires, and every other distribution that a ``loaded`` file is of, with its RECORD.

    A worker imports some of what mnb requires later than this process, so all of it counts. Also returns the loaded
    files that lie among those of a distribution and are in no RECORD.
    """
    every = installed()
    found = first_of_name(every)
    owners = {path: one.name for one in every for path in one.code}
    claims: dict[str, set[str]] = {}  # the last installed wins, and a broken upgrade leaves two of a name
    for path, value in (pair for one in every for pair in one.code.items()):
        claims.setdefault(path, set()).add(value)
    chosen = sorted({*required(OWN, found), *(owners[path] for path in loaded & owners.keys())} - {OWN})
    listed = {os.path.join(one.root, file) for one in every for file in one.files}
    bare, strays = unowned(loaded - owners.keys() - listed, {one.root for one in every}, owners)
    wanted = {name: found[name] for name in chosen if only is None or name in only}
    paths = sorted({path for one in wanted.values() for path in one.code if os.path.exists(path)})
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        read = dict(zip(paths, pool.map(lambda path: _fits(path, claims[path], largest), paths), strict=True))
    checks = {name: _check(one, read) for name, one in wanted.items() if one.code or not one.sums}
    return {**dict.fromkeys(bare), **checks}, strays[:NAMED]


def _fits(path: str, claims: Collection[str], largest: int | None) -> bool:
    told = [claim.rpartition(",") for claim in claims]
    if largest is not None and (size := os.path.getsize(path)) > largest:
        return any(stated in ("", str(size)) for _, _, stated in told)
    return any(record_hash(path, value.partition("=")[0]) == value for value, _, _ in told)


def _check(one: Installed, fits: Mapping[str, bool]) -> WheelCheck | None:
    """``fits``: whether a file is as some RECORD has it. One that is gone was not loaded: images leave tests away."""
    if not one.sums:
        return None
    own = sorted(f"{file},{value}" for file, value in one.sums.items() if ".dist-info/" not in file)
    present = sorted(one.code.keys() & fits.keys())
    return WheelCheck(
        version=one.metadata.version,
        folder=one.root,
        sha256=hashlib.sha256("\n".join(own).encode()).hexdigest(),
        files=len(present),
        differing=tuple(path for path in present if not fits[path])[:NAMED],
    )


def installed() -> tuple[Installed, ...]:
    """All distributions on the import path, in its order, but for folders without metadata that upgrades left."""
    return tuple(_installed(one) for one in distributions() if one.read_text("METADATA") or one.read_text("PKG-INFO"))


def first_of_name(every: Iterable[Installed]) -> dict[str, Installed]:
    """By name: the first of a name is imported."""
    found: dict[str, Installed] = {}
    for one in every:
        found.setdefault(one.name, one)
    return found


def _installed(one: Distribution) -> Installed:
    root = os.path.realpath(str(one.locate_file("")))
    by_conda = (one.read_text("INSTALLER") or "").strip() == "conda"
    edited = conda_sums(sys.prefix) if by_conda else {}
    record = "" if by_conda and not edited else one.read_text("RECORD") or ""
    rows = [row for row in csv.reader(record.splitlines()) if len(row) == 3]
    own = {file: (value, size) for file, value, size in rows if _is_known(value) and not file.startswith("..")}
    sums = {file: value for file, (value, _) in own.items()}
    code = {path: ",".join(own[file]) for file, path in _real_paths(root, filter(_is_code, own)).items()}
    code = {path: edited.get(path, claim) for path, claim in code.items()}
    return Installed(_plain(one.name), one, root, frozenset(file for file, _, _ in rows), sums, code)


def _real_paths(root: str, files: Iterable[str]) -> dict[str, str]:
    """The paths that the kernel shows. Each folder is followed once: there are fifteen thousand files in a few."""
    parts = {file: os.path.split(os.path.join(root, file)) for file in files}
    folders = {folder: os.path.realpath(folder) for folder in {folder for folder, _ in parts.values()}}
    paths = {file: os.path.join(folders[folder], name) for file, (folder, name) in parts.items()}
    return {file: os.path.realpath(path) if os.path.islink(path) else path for file, path in paths.items()}


@functools.cache
def conda_sums(prefix: str) -> dict[str, str]:
    """``algorithm=sum,`` of the files that conda installed, by path: it edits some after their RECORD was written.

    Each package has a list of its files, with their sums as it left them, in ``conda-meta``.
    """
    sums: dict[str, str] = {}
    for listed in Path(prefix, "conda-meta").glob("*.json"):
        with suppress(OSError, ValueError, msgspec.DecodeError):  # then its files are compared with their RECORD
            files = msgspec.json.decode(listed.read_bytes(), type=_CondaPackage).paths_data.paths
            told = {file.path: bytes.fromhex(file.sha256_in_prefix or file.sha256) for file in files}
            code = {path: digest for path, digest in told.items() if digest and _is_code(path)}
            sums |= {os.path.realpath(os.path.join(prefix, path)): f"{_as_record(code[path])}," for path in code}
    return sums


def _is_known(value: str) -> bool:
    return value.partition("=")[0] in hashlib.algorithms_guaranteed


def required(name: str, found: Mapping[str, Installed]) -> set[str]:
    """What is installed of the requirements of ``name``, its extras included, and of theirs without extras."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        seen.add(one := waiting.pop())
        asked = (text.partition(";") for text in (found[one].metadata.requires if one in found else None) or ())
        named = (_plain(re.split(r"[^\w.-]", what)[0]) for what, _, when in asked if one == name or "extra" not in when)
        waiting += [needed for needed in named if needed in found and needed not in seen]
    return seen & found.keys()


def unowned(
    paths: Collection[str], roots: Collection[str], owners: Mapping[str, str]
) -> tuple[list[str], tuple[str, ...]]:
    """Of files that are in no RECORD: the packages that have none, and the files that lie among recorded ones."""
    recorded = {os.path.dirname(path) for path in owners} - set(roots)
    own = str(PACKAGE)
    inside = {
        path: os.path.relpath(path, root).split(os.sep)
        for root in sorted(roots, key=len)
        for path in paths
        if path.startswith(f"{root}{os.sep}") and not path.startswith(f"{own}{os.sep}")
    }
    strays = tuple(sorted(path for path in inside if recorded.intersection(map(str, Path(path).parents))))
    modules = {parts[0].partition(".")[0] for path, parts in inside.items() if path not in strays and _is_code(path)}
    return sorted(modules), strays


def loaded_files() -> frozenset[str]:
    """The files of this process's modules, and those mapped into it; one that was replaced ends in ``(deleted)``."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return frozenset({*(os.path.realpath(file) for file in files if file and os.path.isabs(file)), *_mapped()})


def _mapped() -> Iterator[str]:
    """As proc_pid_maps(5) shows them."""
    rows = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    return (row[5] for row in rows if len(row) == 6 and row[5].startswith("/"))


def record_hash(path: str, algorithm: str = "sha256") -> str:
    """``algorithm=sum`` of a file as a RECORD has it: base64 without padding (PEP 376); empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, algorithm).digest()
    except OSError:
        return ""
    return _as_record(digest, algorithm)


def _as_record(digest: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _is_code(file: str) -> bool:
    return file.endswith(".py") or ".so" in file


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

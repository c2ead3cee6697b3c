"""The code of this process as it lies on disk: mnb's own files, and all distributions that it computes with."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from pathlib import Path

import msgspec

import milabench_ng
from milabench_ng.records.proof import CodeProof, WheelCheck
from milabench_ng.sources import loaded_elsewhere, package_digests

PACKAGE = Path(milabench_ng.__file__).parent
OWN = "milabench-ng"
"""This distribution; its rooms are compared instead, since a checkout has no RECORD."""
NAMED = 3
"""How many differing files of a distribution are named, and how many that belong to none."""


class Installed(msgspec.Struct, frozen=True):
    """A distribution as its RECORD tells it, which others than Python's installers leave out, or do not keep to."""

    metadata: Distribution
    root: str
    """The folder of the import path in which it lies."""
    sums: dict[str, str]
    """Of all files with a sum, by their names in RECORD."""
    code: dict[str, str]
    """Of its Python files and libraries, by the paths that the kernel shows."""


def inspect_code(only: Collection[str] | None) -> CodeProof:
    """The code of this process; what it loads is compared with its RECORD, or of that ``only`` what is named."""
    began = time.monotonic()
    wheels, strays = check_wheels(loaded_files(), only) if only is None or only else ({}, ())
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
    loaded: frozenset[str], only: Collection[str] | None = None
) -> tuple[dict[str, WheelCheck | None], tuple[str, ...]]:
    """Compare what mnb requires, and every other distribution that a ``loaded`` file is of, with its RECORD.

    A worker imports some of what mnb requires later than this process, so all of it counts. Also returns the loaded
    files that lie among those of a distribution and are in no RECORD.
    """
    found = installed()
    owners = {path: name for name, one in found.items() for path in one.code}
    claims = {(path, value) for one in found.values() for path, value in one.code.items()}  # the last installed wins
    chosen = sorted({*required(OWN, found), *(owners[path] for path in loaded & owners.keys())} - {OWN})
    bare, strays = unowned(loaded - owners.keys(), {one.root for one in found.values()}, owners)
    wanted = {name: found[name] for name in chosen if only is None or name in only}
    paths = list(dict.fromkeys(path for one in wanted.values() for path in one.code))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        read = zip(paths, pool.map(record_hash, paths), strict=True)
        changed = {path for path, value in read if (path, value) not in claims}
    checks = {name: _check(one, changed) for name, one in wanted.items() if one.code or not one.sums}
    return {**dict.fromkeys(bare), **checks}, strays[:NAMED]


def _check(one: Installed, changed: Collection[str]) -> WheelCheck | None:
    if not one.sums:
        return None
    own = sorted(f"{file},{value}" for file, value in one.sums.items() if ".dist-info/" not in file)
    return WheelCheck(
        version=one.metadata.version,
        folder=one.root,
        sha256=hashlib.sha256("\n".join(own).encode()).hexdigest(),
        files=len(one.code),
        differing=tuple(path for path in sorted(one.code) if path in changed)[:NAMED],
    )


def installed() -> dict[str, Installed]:
    """All distributions on the import path, by name as PEP 503 writes it; the first of a name is imported."""
    found: dict[str, Installed] = {}
    for one in distributions():
        if (name := _plain(one.name)) not in found:
            root = os.path.realpath(str(one.locate_file("")))
            listed = () if (one.read_text("INSTALLER") or "").strip() == "conda" else one.files or ()  # edits paths
            sums = {str(file): file.hash.value for file in listed if file.hash and file.parts[0] != ".."}
            code = {os.path.realpath(os.path.join(root, file)): value for file, value in sums.items() if _is_code(file)}
            found[name] = Installed(one, root, sums, code)
    return found


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


def record_hash(path: str) -> str:
    """SHA-256 of a file as a RECORD has it: base64 without padding (PEP 376); empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return ""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _is_code(file: str) -> bool:
    return file.endswith(".py") or ".so" in file


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

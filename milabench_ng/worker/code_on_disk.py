"""The code of this process as it lies on disk: mnb's own files, and the wheels that it computes with."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import milabench_ng
from milabench_ng.records.proof import CodeProof, WheelCheck
from milabench_ng.sources import loaded_elsewhere, package_digests

PACKAGE = Path(milabench_ng.__file__).parent
NAMED = 3
"""How many differing files of a wheel are named."""


def inspect_code(wheels: Iterable[str]) -> CodeProof:
    """The code of this process; the files of ``wheels`` are compared with the checksums that they came with."""
    began = time.monotonic()
    mapped = mapped_files()
    return CodeProof(
        package=package_digests(PACKAGE),
        elsewhere=loaded_elsewhere(PACKAGE),
        wheels={name: check_wheel(name, mapped) for name in wheels},
        base=sys.base_prefix,
        prefix=sys.prefix,
        folder=str(PACKAGE.parent),
        seconds=time.monotonic() - began,
    )


def mapped_files() -> frozenset[str]:
    """The files that are mapped into this process (proc_pid_maps(5)); one that was replaced ends in ``(deleted)``."""
    rows = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    return frozenset(row[5] for row in rows if len(row) == 6 and row[5].startswith("/"))


def check_wheel(name: str, mapped: frozenset[str]) -> WheelCheck | None:
    """Compare the Python files of an installed package, and those of its files that are mapped, with its RECORD.

    None without one: it was not installed from a wheel.
    """
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    known = {str(file): file.hash.value for file in distribution.files or () if file.hash}
    if not known:
        return None
    root = os.path.realpath(str(distribution.locate_file("")))
    sums = {os.path.realpath(os.path.join(root, file)): value for file, value in known.items() if _is_code(file)}
    loaded = _loaded(name) | {path for path in mapped if path in sums or path.startswith(f"{root}/{name}/")}
    chosen = sorted(loaded | {path for path in sums if path.endswith(".py")})
    own = sorted(f"{file},{value}" for file, value in known.items() if ".dist-info/" not in file and file[0] != ".")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = dict(zip(chosen, pool.map(record_hash, chosen), strict=True))
    return WheelCheck(
        version=distribution.version,
        folder=str(distribution.locate_file("")),
        sha256=hashlib.sha256("\n".join(own).encode()).hexdigest(),
        files=len(chosen),
        differing=_differing(found, sums)[:NAMED],
    )


def record_hash(path: str) -> str:
    """SHA-256 of a file as a RECORD has it: base64 without padding (PEP 376); empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return ""
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _differing(found: Mapping[str, str], sums: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(path for path, value in found.items() if sums.get(path) != value)


def _is_code(file: str) -> bool:
    return file.endswith(".py") or ".so" in file


def _loaded(name: str) -> set[str]:
    """The files of the loaded modules of a package."""
    own = (module for loaded, module in list(sys.modules.items()) if loaded.partition(".")[0] == name)
    files = (getattr(module, "__file__", None) for module in own)
    return {os.path.realpath(file) for file in files if file and os.path.isabs(file)}

"""The code of a workload: its module and the modules of its package that it imports, directly or indirectly.

The worker finds modules through Python's import system, the verifier only by their files: it must not import them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path


def reachable(own: str, content: bytes, content_of: Callable[[str], bytes | None]) -> dict[str, bytes]:
    """Name and content of the module ``own`` and of those of its package that it reaches: its own first, then by name.

    ``content_of``: the file of a module; None if there is no such module (the name is a function's, for example).
    Imports inside functions count as well. Other packages are identified by their versions.
    """
    package = own.rpartition(".")[0]
    found = {own: content}
    waiting = [own] if package else []
    while waiting:
        for name in _imports(found[waiting.pop()], package):
            if name not in found and (imported := content_of(name)) is not None:
                found[name] = imported
                waiting.append(name)
    return {own: content} | {name: found[name] for name in sorted(found)}


def digest(modules: dict[str, bytes]) -> str:
    """SHA-256 of the modules' concatenated files; for a single module, that of its file."""
    return hashlib.sha256(b"".join(modules.values())).hexdigest()


_OURS = {".py", ".so", ".json", ".j2", ".css", ".js"}
"""Code and data of the package: notes and backups of editors are neither."""


def package_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the package in ``folder``, by room: over paths and contents of its code and data.

    Shipped profiles, weights and baselines (``share``, in a wheel) are left out too: rules pin these.
    """
    rooms: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.suffix in _OURS and path.is_file() and not any(part.startswith(("__pycache__", ".")) for part in parts):
            rooms.setdefault(parts[0], []).append(path)
    rooms.pop("share", None)
    return {room: _files_digest(folder, paths) for room, paths in rooms.items()}


def _files_digest(folder: Path, paths: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in paths:
        whole.update(
            f"{path.relative_to(folder).as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
        )
    return whole.hexdigest()


def loaded_elsewhere(folder: Path) -> tuple[str, ...]:
    """The loaded modules of the package in ``folder`` that are none of its Python files: put in by another's code."""
    own = {name: module for name, module in list(sys.modules.items()) if name.partition(".")[0] == folder.name}
    files = {name: Path(getattr(module, "__file__", None) or os.devnull) for name, module in own.items()}
    return tuple(sorted(name for name, file in files.items() if file.suffix != ".py" or folder not in file.parents))


@functools.cache  # workloads share modules
def _imports(source: bytes, package: str) -> frozenset[str]:
    """The modules of ``package`` that the import statements in ``source`` may refer to."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        found.update(name for name in names if name.startswith(f"{package}."))
    return frozenset(found)

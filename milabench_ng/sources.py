"""The code of a workload: its module and the modules of its package that it imports, directly or indirectly.

The worker finds modules through Python's import system, the verifier only by their files: it must not import them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Callable, Iterator
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


def file_below(folder: Path, name: str) -> bytes | None:
    """The file of the module ``name`` of the package in ``folder``, without importing anything."""
    path = folder.joinpath(*name.split(".")[1:])
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file.read_bytes() for file in files if file.is_file()), None)


def _imports(source: bytes, package: str) -> Iterator[str]:
    """The modules of ``package`` that the import statements in ``source`` may refer to."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.startswith(f"{package}."))

"""Which code a workload is: its module and the modules of its package that it imports, directly or through others."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path


def source_modules(function: Callable[..., object]) -> dict[str, bytes]:
    """Name and content of each module that belongs to ``function``: its own first, the others by name.

    Imports inside functions count as well. What other packages hold is told by their versions.
    """
    own = function.__module__
    found = {own: Path(inspect.getfile(function)).read_bytes()}
    package = own.rpartition(".")[0]
    waiting = [own] if package else []
    while waiting:
        name = waiting.pop()
        for imported in _imports(found[name], package):
            if imported not in found and (content := _content(imported)) is not None:
                found[imported] = content
                waiting.append(imported)
    return {own: found[own]} | {name: found[name] for name in sorted(found)}


def digest(modules: dict[str, bytes]) -> str:
    """SHA-256 of the modules' files one after the other: of a single one that of its file."""
    return hashlib.sha256(b"".join(modules.values())).hexdigest()


def _imports(source: bytes, package: str) -> Iterator[str]:
    """The modules of ``package`` that may be meant by the import statements in ``source``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.startswith(f"{package}."))


def _content(name: str) -> bytes | None:
    """The file of a module; None where there is no such module (the name is that of a function, say)."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # its parent is a module, not a package
        return None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return None
    return Path(found.origin).read_bytes()

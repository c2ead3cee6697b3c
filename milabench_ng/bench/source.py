"""The modules of a workload, as they were imported."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path

from milabench_ng.sources import reachable


def source_modules(function: Callable[..., object]) -> dict[str, bytes]:
    """Name and content of each module that belongs to ``function``: its own first, the others by name."""
    return reachable(function.__module__, Path(inspect.getfile(function)).read_bytes(), _content)


def _content(name: str) -> bytes | None:
    """The file of a module; None where there is no such module (the name is that of a function, say)."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # its parent is a module, not a package
        return None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return None
    return Path(found.origin).read_bytes()

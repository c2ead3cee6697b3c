"""The modules of a workload, as imported."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path

from milabench_ng.model.sources import reachable


def source_modules(function: Callable[..., object]) -> dict[str, bytes]:
    """Name and content of each module that belongs to ``function``: its own first, then by name."""
    return reachable(function.__module__, Path(inspect.getfile(function)).read_bytes(), _content)


def _content(name: str) -> bytes | None:
    """The file of a module; None if there is no such module (the name is a function's, for example)."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # its parent is a module, not a package
        return None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return None
    return Path(found.origin).read_bytes()

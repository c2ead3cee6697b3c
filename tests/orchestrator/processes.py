"""Processes of a launch, as /proc knows them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes that one has started, the oldest first."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in lists for child in path.read_text().split()]


def process_tree(pid: int) -> list[int]:
    """A process and all that descend from it, the oldest first."""
    found = [pid]
    for parent in found:  # grows on the way
        found += children(parent)
    return found


def descriptors(pid: int) -> dict[int, str]:
    """What the descriptors of a process refer to; one that is closed meanwhile is left out."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[int(entry.name)] = os.readlink(entry)
    return found


def helper(module: str, of: int) -> int:
    """The process that runs ``module`` for the orchestrator ``of``; of several, the youngest."""
    name = module.encode()
    return next(pid for pid in reversed(children(of)) if name in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))

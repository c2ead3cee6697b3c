"""Processes of a launch, as /proc knows them."""

from __future__ import annotations

from pathlib import Path


def process_tree(pid: int) -> list[int]:
    """A process and all that descend from it, the oldest first."""
    found = [pid]
    for parent in found:  # grows on the way
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found

"""Reads files of procfs and sysfs."""

from __future__ import annotations

from pathlib import Path


def kernel_text(path: Path) -> str | None:
    """A procfs or sysfs file without surrounding blanks; None if it is missing or unreadable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def kernel_table(path: Path) -> dict[str, int]:
    """A file of ``name number [kB]`` lines, such as ``/proc/meminfo`` or ``memory.stat``; empty if it is missing.

    What has the unit is in bytes.
    """
    rows = [line.replace(":", " ").split() for line in (kernel_text(path) or "").splitlines()]
    return {row[0]: int(row[1]) * (1024 if len(row) > 2 else 1) for row in rows if len(row) > 1 and row[1].isdecimal()}

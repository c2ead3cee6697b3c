"""Processes that tests look for."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process is more than a zombie, which whoever adopted it has still to wait for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

"""Processes of a launch and their groups, as the kernel shows them."""

from __future__ import annotations

import contextlib
import json
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


def own_files(pattern: str) -> list[Path]:
    """Files in the groups of the run that this process makes: another mnb may be at work beside it."""
    found = Path("/sys/fs/cgroup").glob(f"**/mnb/*/{pattern}")
    return [path for path in found if _owner(path) == os.getpid()]


def _owner(path: Path) -> int | None:
    """The process whose run made a group, by the mark of its topmost one; None once it is gone."""
    run = next(above for above in path.parents if above.parent.name == "mnb")
    try:
        return int(json.loads(os.getxattr(run, "user.mnb.owner"))["pid"])
    except OSError:
        return None

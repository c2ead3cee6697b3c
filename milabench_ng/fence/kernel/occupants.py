"""The processes that live in a v2 group to which controllers are to be given (no-internal-process rule).

Documentation/admin-guide/cgroup-v2.rst, "No Internal Process Constraint": a group other than the root of all has
either processes or children with controllers.
"""

from __future__ import annotations

import os
from pathlib import Path

from milabench_ng.cgroupfs import Group2

LEAF = "mnb-main"


def foreign(group: Group2) -> tuple[int, ...]:
    """Processes in the group that are neither this one nor started by it (0: one outside of our pid namespace)."""
    return tuple(pid for pid in group.core.procs if not _ours(pid))


def evacuate(group: Group2) -> Group2:
    """Move this process and those that it started from the group into a leaf below it; returns the leaf."""
    leaf = group.child(LEAF)
    leaf.directory.mkdir(exist_ok=True)
    for pid in group.core.procs:
        if _ours(pid):
            leaf.core.procs = (pid,)
    return leaf


def _ours(pid: int) -> bool:
    """Whether the process is this one or descends from it."""
    while pid > 1 and pid != os.getpid():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True  # it has ended, so it is in nobody's way
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid == os.getpid()

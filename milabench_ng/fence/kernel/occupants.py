"""Handles processes in a v2 group that is to get controllers (no-internal-process rule).

Documentation/admin-guide/cgroup-v2.rst, "No Internal Process Constraint": a group other than the root has
either processes or children with controllers.
"""

from __future__ import annotations

import os

from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.processes import below_us, identify

LEAF = "mnb-main"


def foreign(group: Group2) -> tuple[int, ...]:
    """Processes in the group that are neither this one nor its descendants (0: one outside our pid namespace)."""
    return tuple(pid for pid in group.core.procs if not _ours(pid))


def evacuate(group: Group2) -> None:
    """Move this process and its descendants from the group into a leaf below it."""
    leaf = Group2(group.directory / LEAF)
    leaf.directory.mkdir(exist_ok=True)
    for pid in group.core.procs:
        if _ours(pid):
            leaf.core.procs = (pid,)


def _ours(pid: int) -> bool:
    """Whether the process is this one or descends from it, or has ended and does not matter."""
    if pid == os.getpid() or below_us().proved([pid]):
        return True
    try:
        return pid != 0 and identify(pid) is None
    except PermissionError:  # another user's (hidepid)
        return False

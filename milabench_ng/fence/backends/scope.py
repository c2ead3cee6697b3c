"""Back end `scope`: `cgroup2` inside a systemd scope delegated to this run.

On a node that systemd manages, it owns the groups; it hands over a unit with `Delegate=yes` (systemd.io, "Control Group
APIs and Delegation"). A process cannot be fenced from outside its scope (the kernel refuses to move processes across
the border). Therefore the orchestrator itself must be in it: `enter` restarts this program there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from milabench_ng.fence.backends import cgroup2
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.kernel.mounts import own_scope
from milabench_ng.records.isolation import Tier

NAME = "scope"
WARM_WORKERS = True
GROUPS_BY = cgroup2.GROUPS_BY
IO_METHOD = cgroup2.IO_METHOD
bounds = cgroup2.bounds
# Set for the restarted program, so that a scope that does not help is not tried again and again.
_MARK = "MNB_SCOPE"
_PATIENCE_S = 20.0


class ScopeFence(cgroup2.Cgroup2Fence):
    """The run's group inside the scope; the orchestrator is its neighbour, in a leaf."""

    backend = NAME


def tier(capabilities: Capabilities) -> Tier | None:
    """The tier that this back end can offer here: None outside a scope."""
    inside = any(own_scope(parent) for parent in capabilities.parents)
    return cgroup2.tier(capabilities) if inside else None


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> ScopeFence:
    """Open the fence of one run; `holds` describes what it uses; `shm`: whether tenants can have their own /dev/shm."""
    return ScopeFence(capabilities, run_id, holds, shm)


def other_scopes(capabilities: Capabilities) -> tuple[str, ...]:
    """The scopes of other runs, live or dead, next to this process's own."""
    beside = []
    for parent in capabilities.parents:
        if own_scope(parent):
            beside += [path for path in Path(parent).parent.glob("mnb-*.scope") if str(path) != parent]
    return tuple(map(str, sorted(beside)))


def enter(capabilities: Capabilities) -> None:
    """Restart this program, as the same process, in a scope; return if that is impossible or unnecessary.

    Must be called before anything is started or written. Changes nothing unless systemd is the node's init.
    """
    if not worthwhile(capabilities, os.environ, Path("/run/systemd/system").is_dir()):
        return
    unit = f"mnb-{os.getpid()}-{os.urandom(4).hex()}"
    version = _run(["systemctl", "--version"])
    if version is None or _run([*command(unit, version, capabilities.root), "true"]) is None:
        return  # no bus, or no permission to make units: the probe's messages say what to do
    os.environ[_MARK] = unit
    argv = [*command(unit, version, capabilities.root), sys.executable, *sys.orig_argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(argv[0], argv)


def worthwhile(capabilities: Capabilities, environ: Mapping[str, str], systemd: bool) -> bool:
    """Whether a scope could give more than is available now: not on v1, which systemd does not delegate.

    Never in a Slurm allocation: the scope would be outside the job.
    Root gets one even if it can fence without, because systemd may change its other groups.
    """
    if not systemd or capabilities.mode != "v2" or {_MARK, "SLURM_JOB_ID"} & environ.keys() or tier(capabilities):
        return False
    return capabilities.root or (capabilities.tier != "full" and "XDG_RUNTIME_DIR" in environ)


def command(unit: str, version: str, root: bool) -> tuple[str, ...]:
    """The start of a command line that runs the rest in a delegated scope; `version` as `systemctl` reports it.

    Since systemd 253, an out-of-memory kill in a scope stops the whole scope, unless told not to: one tenant's end must
    not end all of them (systemd.scope(5), `OOMPolicy=`).
    """
    number = re.search(r"systemd (\d+)", version)
    careful = ("-p", "OOMPolicy=continue") if number and int(number[1]) >= 253 else ()
    manager = () if root else ("--user",)
    return (
        "systemd-run",
        *manager,
        "--scope",
        "-q",
        "--collect",
        f"--unit={unit}",
        "-p",
        "Delegate=yes",
        *careful,
        "--",
    )


def _run(argv: Sequence[str]) -> str | None:
    """The output of a command; None if it is missing, fails or hangs."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None

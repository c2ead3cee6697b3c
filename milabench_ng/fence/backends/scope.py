"""Back end `scope`: `cgroup2` inside a systemd scope that is delegated to this one run.

On a node that systemd manages, groups are systemd's; what it hands over is a unit with `Delegate=yes` (systemd.io,
"Control Group APIs and Delegation"). A process cannot be fenced by somebody outside of its scope (the kernel refuses to
move processes across the border), so the orchestrator itself has to be in it: `enter` starts this program again there.
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
from milabench_ng.fence.sharing.shares import Bounds
from milabench_ng.records.isolation import Tier

NAME = "scope"
WARM_WORKERS = True
# Set for the program that was started again, so that a scope which does not help is not tried for ever.
_MARK = "MNB_SCOPE"
_PATIENCE_S = 20.0


class ScopeFence(cgroup2.Cgroup2Fence):
    """The run's group inside the scope; the orchestrator is its neighbour, in a leaf."""

    backend = NAME


def tier(capabilities: Capabilities) -> Tier | None:
    """What this back end can offer here: nothing outside of a scope."""
    inside = any(own_scope(parent) for parent in capabilities.parents)
    return cgroup2.tier(capabilities) if inside else None


def bounds(capabilities: Capabilities) -> Bounds:
    """What the groups above the scope leave to its tenants."""
    return cgroup2.bounds(capabilities)


def open_fence(capabilities: Capabilities, run_id: str, holds: str, shm: bool) -> ScopeFence:
    """The fence of one run; `holds` says in words what it uses, `shm` whether tenants can have their own /dev/shm."""
    return ScopeFence(capabilities, run_id, holds, shm)


def other_scopes(capabilities: Capabilities) -> tuple[str, ...]:
    """The scopes of other runs, living or dead, beside the one that this process is in."""
    beside = []
    for parent in capabilities.parents:
        if own_scope(parent):
            beside += [path for path in Path(parent).parent.glob("mnb-*.scope") if str(path) != parent]
    return tuple(map(str, sorted(beside)))


def enter(capabilities: Capabilities) -> None:
    """Start this program again, as the same process, in a scope; returns where that is not to be had or not needed.

    Nothing may have been started or written before. Without systemd as the init of this node nothing is changed.
    """
    if not worthwhile(capabilities, os.environ, Path("/run/systemd/system").is_dir()):
        return
    unit = f"mnb-{os.getpid()}-{os.urandom(4).hex()}"
    version = _run(["systemctl", "--version"])
    if version is None or _run([*command(unit, version, capabilities.root), "true"]) is None:
        return  # no bus, or no right to make units: the probe's messages say what to do
    os.environ[_MARK] = unit
    argv = [*command(unit, version, capabilities.root), sys.executable, *sys.orig_argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(argv[0], argv)


def worthwhile(capabilities: Capabilities, environ: Mapping[str, str], systemd: bool) -> bool:
    """Whether a scope could give more than can be had now: not on v1, which systemd does not delegate.

    In a Slurm allocation never: the scope lies outside of the job.
    Root gets one even where it can fence without, because the other groups there are systemd's to change.
    """
    if not systemd or capabilities.mode != "v2" or {_MARK, "SLURM_JOB_ID"} & environ.keys() or tier(capabilities):
        return False
    return capabilities.root or (capabilities.tier != "full" and "XDG_RUNTIME_DIR" in environ)


def command(unit: str, version: str, root: bool) -> tuple[str, ...]:
    """The start of a command line that runs the rest of it in a delegated scope; `version` as `systemctl` tells it.

    From systemd 253 on a scope is stopped when the kernel kills something in it for want of memory, unless told not to:
    one tenant's end must not be everybody's (systemd.scope(5), `OOMPolicy=`).
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
    """What it prints; None if it is not there, fails or hangs."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None

"""The check that an owner of a GPU node runs, run here (root and a GPU; skipped with the reason elsewhere)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench_ng.fence.probing.probe import probe
from milabench_ng.node.drivers.opening import read_gpus

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-fence-gpu"
POINTS = (
    *("shares equal and disjoint", "GPU without a NUMA node", "out of memory", "hogs"),
    *("I/O share", "pinned memory is charged", "one GPU each"),
)
AS_NOBODY = f"""
import email.parser, os, sys  # what is imported late may lie where nobody else may read
sys.argv[:] = [{str(SCRIPT)!r}]
source = compile(open(sys.argv[0]).read(), sys.argv[0], "exec")
names = dict(globals(), __name__="check")
sys.modules["check"] = sys.modules["__main__"]
exec(source, names)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(names["main"]())
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with the modules of this one."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), *sys.path[1:]])}
    return subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.gpu
@pytest.mark.root
def test_the_fence_holds_with_gpus() -> None:
    gpus, fenceable = read_gpus(), probe()
    if not gpus.devices:
        pytest.skip(f"needs an NVIDIA GPU: {'; '.join(gpus.notes) or 'there is none'}")
    if fenceable.tier != "full":
        pytest.skip(f"needs a node where mnb can fence fully: {' '.join(fenceable.messages)}")
    result = python(str(SCRIPT))
    verdicts = {line[6:].partition(":")[0]: line[:4] for line in result.stdout.splitlines()[1:]}
    assert tuple(verdicts) == POINTS, result.stderr
    # Only the disk may be one that cannot be limited.
    assert {name for name, verdict in verdicts.items() if verdict != "PASS"} <= {"I/O share"}, result.stdout
    assert result.returncode == 0


@pytest.mark.root
def test_an_unprivileged_user_gets_a_failure_with_the_reason() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    result = python("-c", AS_NOBODY)
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("FAIL  isolation: "), result.stderr
    assert "Asked for --isolation full, but this node offers" in result.stdout

"""The Slurm allocation that this process runs in: finds out what a step holds by starting one.

srun(1), slurm.conf(5), cgroup.conf(5). A job's group belongs to Slurm and we cannot divide it; a step is a part of the
job that Slurm fences itself, as far as its administrator has enabled it.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from milabench_ng.fence.capabilities import SlurmJob
from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.fence.kernel.counters1 import Counters1
from milabench_ng.fence.kernel.counters2 import Counters2
from milabench_ng.fence.kernel.mounts import CgroupMount, find, parse_mountinfo, parse_own_groups
from milabench_ng.fence.kernel.processes import Process, identify
from milabench_ng.fence.kernel.procview import read_process
from milabench_ng.fence.kernel.readings import host_text
from milabench_ng.fence.killing import signal_child
from milabench_ng.fence.slurm_step import step as step_program
from milabench_ng.model.errors import IsolationError
from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import ProcView

WAIT_S = 30
"""How long Slurm may take to find a step's resources, which the previous step has just released."""
_START_S = 60.0

SLURM_S = 30.0
"""How long Slurm's controller may take to answer."""


class Step:
    """A step of the job that waits for processes to run in it, until `close` or the end of this process."""

    def __init__(self, words: tuple[str, ...], what: str) -> None:
        """Start it; `words` tell srun its resources. Raises IsolationError with Slurm's message if that fails."""
        self.socket = f"mnb-step-{os.urandom(16).hex()}"
        hold = [sys.executable, "-I", "-S", step_program.__file__, "hold", self.socket]
        with tempfile.TemporaryFile("w+") as complaints:
            self._srun = subprocess.Popen(
                ["srun", *words, "--ntasks=1", "--nodes=1", "--mpi=none", "--input=none", "--chdir=/", *hold],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=srun_environment(os.environ),
                bufsize=0,
                start_new_session=True,  # Ctrl-C at the terminal is for the orchestrator
            )
            told = self._first_line()
            if not told.strip().isdecimal():
                signal_child(self._srun, signal.SIGKILL)
                self._srun.wait()
                complaints.seek(0)
                said = " ".join(complaints.read().split()) or f"nothing in {_START_S:.0f} s"
                raise IsolationError(
                    f"isolation: Slurm does not start {what}: {said}. The step of mnb itself must not hold the "
                    "resources of its tenants: start it from the batch script, or with srun --overlap."
                )
        self._control, pid = step_program.connect(self.socket)
        holder = identify(pid)
        if holder is None:
            raise IsolationError(f"isolation: {what} ended as soon as Slurm started it.")
        self.holder: Process = holder
        self._id = _step_id(pid)

    def _first_line(self) -> str:
        assert self._srun.stdout is not None
        ready, _, _ = select.select([self._srun.stdout], [], [], _START_S)
        return self._srun.stdout.readline().decode() if ready else ""

    def close(self, patience_s: float) -> bool:
        """End it and what Slurm still finds in it; False if that takes longer."""
        self._control.close()
        try:
            self._srun.wait(patience_s)
        except subprocess.TimeoutExpired:
            return False
        assert self._srun.stdout is not None
        self._srun.stdout.close()
        return True

    def cancel(self) -> None:
        """Have Slurm kill what is in it, if it does not end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # a controller that is away; the step ends with the job
            subprocess.run(["scancel", "--signal=KILL", self._id], capture_output=True, check=False, timeout=SLURM_S)


def srun_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Drop the job script's own requests (tasks, memory, binding), which would apply to our steps too."""
    kept = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF_SERVER")
    return {name: value for name, value in environ.items() if not name.startswith(("SLURM_", "SRUN_")) or name in kept}


def cpus_on_node(environ: Mapping[str, str]) -> int:
    """The job's number of CPUs on this node: SLURM_JOB_CPUS_PER_NODE such as `72(x2),36`, at SLURM_NODEID."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", environ.get("SLURM_JOB_CPUS_PER_NODE", "")):
        counts += [int(count)] * int(times or 1)
    number = int(environ.get("SLURM_NODEID", "0"))
    return counts[number] if number < len(counts) else 1


def read_job(environ: Mapping[str, str], parents: tuple[str, ...], swap_bytes: int) -> SlurmJob | None:
    """The allocation, if this process runs on a node of one; also None if the job's own group can be divided.

    `parents` are the directories in which this process can make groups. Raises IsolationError if no step is available.
    """
    job, node = environ.get("SLURM_JOB_ID"), environ.get("SLURMD_NODENAME")
    if not job or not node or shutil.which("srun") is None or any(f"/job_{job}" in parent for parent in parents):
        return None
    words = ("--overlap", f"--nodelist={node}", f"--cpus-per-task={cpus_on_node(environ)}", "--gres=none")
    step = Step(words, "a step in order to see what it holds")
    proc = read_process(step.holder.pid)
    effective = step_groups(proc).counters().limits()
    step.close(_START_S)
    swaps = swap_bytes and effective.swap_bytes != 0
    limits = [effective.memory_bytes, *(above.memory_bytes for above in effective.ancestors)]
    return SlurmJob(
        id=job,
        node=node,
        cpus=proc.cpus_allowed,
        cpus_held=effective.cpus == proc.cpus_allowed,
        memory_held=effective.memory_bytes is not None and not swaps,
        memory_bytes=min((limit for limit in limits if limit is not None), default=None),
        consumable="_MEMORY" in _select_parameters(),
        gpus="SLURM_JOB_GPUS" in environ or "SLURM_STEP_GPUS" in environ,
    )


def words_for(job: SlurmJob, cpus: int, memory_bytes: int) -> tuple[str, ...]:
    """The words that tell srun a tenant's share."""
    return (
        "--exact",
        f"--immediate={WAIT_S}",
        f"--nodelist={job.node}",
        f"--cpus-per-task={cpus}",
        *([f"--mem={memory_bytes // MIB}M"] if job.consumable else []),
        "--gpus-per-task=1" if job.gpus else "--gres=none",
    )


class StepGroups(msgspec.Struct, frozen=True):
    """A step's directories: the one with its RAM limit, and its task's, where its processes are counted."""

    cpuset: Path | None = None
    limited: Path | None = None
    task: Path | None = None
    v2: bool = False

    def counters(self) -> Counters1 | Counters2:
        if self.v2 and self.limited:
            node = Group2(self.limited)
            return Counters2(node, [name for name in ("cpuset", "memory") if name in node.core.controllers])
        found = {"cpuset": self.cpuset, "memory": self.limited}
        return Counters1({name: directory for name, directory in found.items() if directory})

    def task_counters(self) -> Counters1 | Counters2:
        """Counters of the task, where v1 counts what was killed."""
        return self.counters() if self.v2 else Counters1({"memory": self.task} if self.task else {})


def step_groups(proc: ProcView) -> StepGroups:
    """The groups that Slurm made for a process's step; none without task/cgroup."""
    mounts, own = parse_mountinfo(host_text("self/mountinfo")), parse_own_groups("\n".join(proc.groups))
    unified = _directory(mounts, own, "")
    if unified:
        return StepGroups(limited=_limited(unified, "memory.max", "max"), task=unified, v2=True)
    cpuset, memory = _directory(mounts, own, "cpuset"), _directory(mounts, own, "memory")
    limited = _limited(memory, "memory.limit_in_bytes", str((1 << 63) - 1 & -os.sysconf("SC_PAGE_SIZE")))
    return StepGroups(cpuset=cpuset, limited=limited, task=memory)


def _step_id(pid: int) -> str:
    """The step that Slurm started this process in, named as in its commands."""
    environ = dict(line.partition("=")[::2] for line in host_text(f"{pid}/environ").split("\0"))
    return f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"


def _directory(mounts: tuple[CgroupMount, ...], own: Mapping[str, str], controller: str) -> Path | None:
    """The controller's directory; only a step's group counts, since the job or the node is above it."""
    mount, group = find(mounts, controller), own.get(controller, "")
    return mount.directory(group) if mount and "/step_" in group else None


def _limited(task: Path | None, file: str, unlimited: str) -> Path | None:
    """The nearest group, from the task's up to the step's, that limits memory; the task's if none does."""
    directory = task
    while directory and "/step_" in str(directory) and (directory / file).exists():
        if (directory / file).read_text().strip() != unlimited:
            return directory
        directory = directory.parent
    return task


def _select_parameters() -> str:
    """The cluster's SelectTypeParameters, in capitals; empty if Slurm does not report it."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, check=False, timeout=SLURM_S
        )
    except subprocess.TimeoutExpired:
        return ""
    found = re.search(r"^SelectTypeParameters\s*=\s*(\S+)", done.stdout, re.MULTILINE)
    return found[1].upper() if found else ""

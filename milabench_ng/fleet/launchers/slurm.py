"""``slurm``: the nodes of an allocation, through one srun for all of them.

srun says when all have ended, not when each has. So what runs on a node prints its name first and its exit status last,
and srun labels every line with the number of its task.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from milabench_ng.fleet.launchers.interface import NODE_WORD, Asked, Ended, Heard, Said
from milabench_ng.fleet.launchers.processes import Child, ending, turns
from milabench_ng.fleet.nodes import NodeName, node_name
from milabench_ng.model.errors import InputError

_BEGINS, _ENDS = b"mnb-node ", b"mnb-status "
_ON_A_NODE = f"""\
trap : TERM INT
echo "{_BEGINS.decode()}$SLURMD_NODENAME"
sh -c "$1"
printf '\\n{_ENDS.decode()}%s\\n' "$?"
"""
_ERROR = b"srun: error: "
_MOST = 2000
"""Errors of srun that are kept."""
_STATUS = re.compile(_ENDS + rb"(\d{1,3})\s*")
_LABELLED = re.compile(rb" *(\d+): ?")


class Slurm:
    """The nodes of the allocation that this process is in."""

    arguments = ()
    head = '"$SLURM_LAUNCH_NODE_IPADDR"'

    def __init__(self, nodes: tuple[NodeName, ...], allocated: frozenset[NodeName]) -> None:
        self.nodes = nodes
        self._allocated = allocated

    @contextmanager
    def run(self, nodes: Collection[NodeName], script: str, heard: Heard) -> Iterator[Iterator[Ended]]:
        """See `Launcher.run`."""
        step = Step([node for node in nodes if node in self._allocated], heard)
        away = [Ended(node, None, "not in this allocation") for node in nodes if node not in self._allocated]
        if not step.nodes:
            yield iter(away)
            return
        srun = Child(self._words(step.nodes, script), step.output, step.errors)
        with ending([srun]):
            yield _ended(away, srun, step)

    def _words(self, nodes: Collection[NodeName], script: str) -> list[str]:
        count = len(nodes)
        return [
            *("srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}"),
            # The others go on when a node fails or goes away.
            *("--kill-on-bad-exit=0", "--wait=0", "--no-kill"),
            # The tenants of `mnb jobs` are steps themselves, on the same CPUs.
            *("--overlap", "--cpu-bind=none"),
            *("--label", "--input=none"),
            *("sh", "-c", _ON_A_NODE, "mnb", script.replace(NODE_WORD, "$SLURMD_NODENAME")),
        ]


class Step:
    """What srun tells of a step."""

    def __init__(self, nodes: list[NodeName], heard: Heard) -> None:
        self.nodes = nodes
        self.ended: list[Ended] = []
        """Since they were last taken."""
        self._heard = heard
        self._missing = dict.fromkeys(nodes)
        self._names: dict[bytes, NodeName] = {}
        """By the number of the task."""
        self._said = {node: Said() for node in nodes}
        self._of_srun: list[str] = []

    def output(self, line: bytes) -> None:
        task, text = _split(line)
        if text.startswith(_BEGINS) and task not in self._names:
            name = text.removeprefix(_BEGINS).decode(errors="replace").strip()
            self._names[task] = "" if name in self._names.values() else name  # a node speaks for itself only
        node = self._names.get(task, "")
        if (status := _STATUS.fullmatch(text)) and node in self._missing:
            del self._missing[node]
            self.ended.append(Ended(node, int(status[1]), self._said[node].text))
        elif node in self._missing and not text.startswith(_BEGINS):
            self._heard(node, text)

    def errors(self, line: bytes) -> None:
        """A line of a task's error output, or of srun itself."""
        task, text = _split(line)
        if (node := self._names.get(task)) in self._said:
            self._said[node].add(text)
        elif line.startswith(_ERROR):
            said = line.removeprefix(_ERROR).decode(errors="backslashreplace")
            self._of_srun = [*self._of_srun, said][-_MOST:]

    def lost(self) -> Iterator[Ended]:
        """The nodes that have not told their end, when srun has ended."""
        for node in self._missing:
            named = [line for line in self._of_srun if re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", line)]
            yield Ended(node, None, (named or self._of_srun or ["srun ended without a word of it"])[-1])


def make(asked: Asked) -> Slurm:
    """The nodes of the allocation, or the first ``--nodes`` of them. Raises InputError outside of one.

    Options of the engine are those of sbatch, which it had when it made the allocation.
    """
    if asked.hosts is not None:
        raise InputError("--launcher slurm: Slurm picks the nodes. To name some, add -- --nodelist=NODES")
    if not in_allocation() or shutil.which("srun") is None:
        raise InputError("--launcher slurm: not inside an allocation of Slurm, or no srun on the PATH")
    allocated = tuple(node_name(name) for name in _expanded(os.environ["SLURM_JOB_NODELIST"]))
    if asked.known:
        return Slurm(asked.known, frozenset(allocated))
    count = len(allocated) if asked.count is None else asked.count
    if not 1 <= count <= len(allocated):
        raise InputError(f"--nodes {count}: the allocation has {len(allocated)}")
    return Slurm(allocated[:count], frozenset(allocated))


def submit(script: str) -> int:
    """Hand a script to Slurm, whose answer is printed; the exit status of sbatch, which with --wait is the job's.

    Raises InputError if it refuses.
    """
    try:
        done = subprocess.run(["sbatch"], input=script, stdout=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError:
        raise InputError("--launcher slurm: no sbatch on the PATH. Run this on a login node of the cluster") from None
    if not done.stdout:
        raise InputError("--launcher slurm: sbatch refused the job")
    print(done.stdout, end="")
    return done.returncode


def in_allocation() -> bool:
    """Whether this process runs inside a job of Slurm."""
    return "SLURM_JOB_NODELIST" in os.environ


def _expanded(nodes: str) -> list[str]:
    """The names in a list such as ``gpu[01-16]``."""
    done = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"scontrol show hostnames: {done.stderr.strip()}")
    return done.stdout.split()


def _split(line: bytes) -> tuple[bytes, bytes]:
    """The number of the task, and the line; no number if the line is srun's own."""
    found = _LABELLED.match(line)
    return (found[1], line[found.end() :]) if found else (b"", line)


def _ended(away: list[Ended], srun: Child, step: Step) -> Iterator[Ended]:
    yield from away
    for _ in turns([srun]):
        ended, step.ended = step.ended, []
        yield from ended
    yield from step.lost()

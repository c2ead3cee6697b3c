"""A launch over several devices: one rank per device, started by torch's elastic agent.

The agent's process is the launch's worker and runs in the first device's share; each rank is a fork of it that enters
its own device's share before it touches a device. No restarts: a dead rank is a failed launch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from tempfile import mkdtemp
from types import FrameType, SimpleNamespace
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from milabench_ng.bench import Definition
from milabench_ng.bench.channel import PipeChannel, RankChannel, SharedStop, shared_numbers
from milabench_ng.fence.entry import EXIT_REFUSED, EntryError, confine, die_with, join, refusal
from milabench_ng.model.events import Failed
from milabench_ng.node.drivers.visibility import hidden, visible
from milabench_ng.worker.rank import failure, run_rank
from milabench_ng.worker.requests import Task

_ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def run(task: Task, channel: PipeChannel, definition: Definition, since: float) -> int:
    """Run every rank of ``task``; return the exit status of the launch."""
    # The agent counts the GPUs to bind ranks to NUMA nodes. The fence has already placed them, and CUDA cannot be used
    # after a fork once queried through the runtime: hide the GPUs, and have the driver queried.
    os.environ |= {**hidden([seat.device for seat in task.seats]), _ASK_NVML: "1"}
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=len(task.seats),
        run_id=f"mnb-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        start_method="fork",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=mkdtemp(prefix="mnb-ranks-")),
    )
    agent = Agent(pid=os.getpid(), channel=channel, definition=definition, stop=SharedStop(), pids=shared_numbers())
    first = FirstDeath()
    signal.signal(signal.SIGCHLD, first.note)  # no thread: the ranks are forked
    try:
        elastic_launch(config, run_one)(task, agent, since)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        noted = Death(failure.pid, signal.Signals(-failure.exitcode) if failure.exitcode < 0 else None)
        death = first_killed(first.seen, noted)
        if death is not None and death.signal is not None:
            rank = list(agent.pids[: len(task.seats)]).index(death.pid)
            text = f"rank {rank} was killed by {death.signal.name}"
            channel.send(Failed(rank=rank, kind="signal", message=text, traceback=""))
        return 1
    return 0


class Agent(NamedTuple):
    """What every rank inherits from the process that forked it."""

    pid: int
    channel: PipeChannel
    definition: Definition
    stop: SharedStop
    pids: memoryview
    """Pids of the ranks, each of which writes its own."""


def run_one(task: Task, agent: Agent, since: float) -> None:
    rank = int(os.environ["RANK"])
    seat = task.seats[rank]
    agent.pids[rank] = os.getpid()
    # The agent ends the remaining ranks with SIGTERM and waits up to 30 s. Its own handler, inherited by the fork,
    # never runs in a rank that waits for a dead one in a collective.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with(agent.pid)
    try:
        if len(task.seats) == 1:  # its parent has entered, and is confined
            join(SimpleNamespace(**{**seat.entry, "procs": ()}))
        else:
            join(SimpleNamespace(**seat.entry))
            confine(SimpleNamespace(**seat.entry))
    except EntryError as error:
        agent.channel.send(Failed(rank=rank, kind="isolation_lost", message=refusal(error), traceback=""))
        os._exit(EXIT_REFUSED)
    forked = time.monotonic()
    del os.environ[_ASK_NVML]
    if seat.device.uuid is not None:
        os.environ |= visible((seat.device,))
    try:
        if seat.device.uuid is None:
            dist.init_process_group("gloo")
        else:
            dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
        channel = RankChannel(agent.channel, rank, agent.stop)
        run_rank(task, rank, channel, agent.definition, {"agent": forked - since}, forked)
        dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001  # whatever a rank raises becomes the record's cause
        agent.channel.send(failure(error, rank))
        os._exit(1)


class Death(NamedTuple):
    """How a process ended."""

    pid: int
    signal: signal.Signals | None
    """The signal that killed it; None if it ended by itself."""


class FirstDeath:
    """The first child to end (waitid(2) with WNOWAIT leaves its status to be read again).

    When one rank is killed, the others fail an instant later because it is gone; only the first death is the cause.
    """

    def __init__(self) -> None:
        self.seen: Death | None = None

    def note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The handler of SIGCHLD."""
        if self.seen is not None:
            return
        with contextlib.suppress(ChildProcessError):  # its starter was faster
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                killed = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                self.seen = Death(ended.si_pid, signal.Signals(ended.si_status) if killed else None)


def first_killed(seen: Death | None, noted: Death) -> Death | None:
    """The death by a signal that ended a launch of several ranks; None if its first rank ended by itself.

    ``seen``: what `FirstDeath` saw. It misses a death that the agent reaps before the handler runs; what it sees next
    is the end of another rank, most often by the SIGTERM that the agent sends to those that remain.
    ``noted``: what the agent noted at its poll, the lowest rank of those that had ended by then.
    """
    if seen is not None and seen.signal not in (None, signal.SIGTERM):
        return seen
    return noted if noted.signal is not None else None

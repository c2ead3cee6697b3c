"""One rank of a launch, in its own process inside the fence: thread pools, device, data, workload."""

from __future__ import annotations

import os
import select
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import msgspec
import threadpoolctl
import torch

from milabench_ng.bench import Bench, Definition
from milabench_ng.bench.ahead import INTERVAL_S
from milabench_ng.bench.channel import Channel, TrialChannel
from milabench_ng.bench.options import split
from milabench_ng.datasets.registry import find
from milabench_ng.model.errors import MnbError
from milabench_ng.model.events import Entered, Failed, Peak, Phase, encode
from milabench_ng.model.plan import tenant_number
from milabench_ng.worker.causes import cause_of, text_of, told
from milabench_ng.worker.requests import RankSlot, Task


def run_rank(
    task: Task, rank: int, channel: Channel, definition: Definition, phases: dict[str, float], since: float
) -> None:
    """Run the workload as one rank of ``task``, in this process."""
    seat = task.seats[rank]
    size_thread_pools(seat.threads)
    before_bytes = 0
    if task.trial_steps:
        before_bytes = resident().now
        channel = TrialChannel(channel, rank, task.trial_steps)
    channel.send(Entered(rank=rank, pid=os.getpid(), torch_threads=torch.get_num_threads()))
    phases = {**phases, "enter": time.monotonic() - since}
    since = time.monotonic()
    device = torch.device("cpu") if definition.cpu_only else open_device(seat)
    phases["device"] = time.monotonic() - since
    for name, seconds in phases.items():
        channel.send(Phase(rank=rank, name=name, seconds=seconds))
    common, own = split(task.arguments)
    bench = Bench(
        device=device,
        options=common,
        rule=task.rule,
        channel=channel,
        data_set=find(task.data.name) if task.data else None,
        data_path=Path(task.data.path) if task.data else None,
        tenant=tenant_number(seat.slot),
        rank=rank,
        tenants=task.processes,
        mark_interval_s=0.0 if definition.in_ranks(len(task.seats)) else INTERVAL_S,
        close_in_children=(3, 4),
        read_bytes_per_s=task.read_bytes_per_s,
        late_steps=task.late_steps,
    )
    definition(bench, **own)
    if task.trial_steps:
        used = device_peak(device) if device.type == "cuda" else resident().peak - before_bytes
        channel.send(Peak(rank=rank, bytes=max(0, used)))


def failure(error: Exception, rank: int) -> Failed:
    """A workload's exception, as the event from which the record's cause is made."""
    error = told(error)
    kind = cause_of(error)
    text = "" if isinstance(error, MnbError) and error.__cause__ is None else "".join(traceback.format_exception(error))
    failed = Failed(rank=rank, kind=kind, message=f"{type(error).__name__}: {text_of(error)}"[:500], traceback=text)
    while len(encode(failed)) > select.PIPE_BUF:  # a longer line could mix with another rank's
        failed = msgspec.structs.replace(failed, traceback=failed.traceback[len(failed.traceback) // 4 + 1 :])
    return failed


def size_thread_pools(threads: int) -> None:
    """Make OpenMP, BLAS and torch use ``threads`` threads: after a fork, OMP_NUM_THREADS is no longer read."""
    torch.set_num_threads(threads)
    threadpoolctl.threadpool_limits(threads)


def open_device(seat: RankSlot) -> torch.device:
    """The seat's device, with its context created, and no more than its part of the memory for torch."""
    if seat.device.uuid is None:
        return torch.device("cpu")
    device = torch.device("cuda", 0)
    if seat.memory_part is not msgspec.UNSET:
        torch.cuda.set_per_process_memory_fraction(seat.memory_part, device)
    torch.zeros(1, device=device)
    return device


class Resident(NamedTuple):
    """The resident memory of this process in bytes, with the pages that it shares (proc(5): VmRSS, VmHWM)."""

    now: int
    peak: int
    """Since the process was made; of a fork, since the fork."""


def resident() -> Resident:
    """The resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines) if name[:2] == "Vm"}
    return Resident(kib["VmRSS"] << 10, kib["VmHWM"] << 10)


def device_peak(device: torch.device) -> int:
    """The most bytes in use on ``device``: what torch's allocator held at most, and all that is outside of it now.

    Outside are the CUDA context, libraries' own buffers, and other processes.
    """
    free, total = torch.cuda.mem_get_info(device)
    outside = total - free - torch.cuda.memory_reserved(device)
    return outside + torch.cuda.max_memory_reserved(device)

"""Workloads that go wrong, named by path in the tests' profiles."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import repeat

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

from milabench_ng.bench import Bench, workload


@workload(unit="steps")
def not_a_number(bench: Bench) -> None:
    """A loss that is not finite. An item is a step. Timed: one optimizer step."""
    model = bench.place(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in bench.measure(repeat(None), count=1):
        time.sleep(0.01)
        bench.step(model(torch.ones(1, 1)).sum() * float("nan"), optimizer)


@workload(unit="steps")
def raises(bench: Bench, *, after: int = 20) -> None:
    """An exception in the middle. An item is a step. Timed: a short sleep.

    Options:
        after: steps.
    """
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.05)
        if step == after:
            raise RuntimeError("the planned accident")


@workload(unit="steps")
def slow(bench: Bench) -> None:
    """A step of a second. An item is a step. Timed: the sleep."""
    for _ in bench.measure(repeat(None), count=1):
        time.sleep(1)


@workload(unit="steps")
def tunes(bench: Bench) -> None:
    """A first step of three seconds, as of a library that tunes itself, then steps of 10 ms. Timed: the sleep."""
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.01 if step else 3)


@workload(unit="steps")
def steady(bench: Bench) -> None:
    """Steps of 10 ms. An item is a step. Timed: the sleep."""
    for _ in bench.measure(repeat(None), count=1):
        time.sleep(0.01)


@workload(unit="steps")
def never_ready(bench: Bench) -> None:
    """Hangs while it builds. An item is a step. Timed: nothing."""
    time.sleep(3600)
    for _ in bench.measure(repeat(None), count=1):
        pass


@workload(unit="steps")
def hangs(bench: Bench, *, after: int = 8) -> None:
    """Hangs in the middle. An item is a step. Timed: a short sleep.

    Options:
        after: steps.
    """
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        if step == after:
            print("hanging", flush=True)
            time.sleep(3600)
        time.sleep(0.05)


class Stuck(Dataset[torch.Tensor]):
    """Samples that stop coming."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index > 200:
            self.never_comes()
        time.sleep(0.002)
        return torch.zeros(1)

    def never_comes(self) -> None:
        time.sleep(3600)


@workload(unit="samples")
def stuck_loader(bench: Bench) -> None:
    """A loader process that hangs. An item is a sample. Timed: the wait for it."""
    for _ in bench.measure(DataLoader(Stuck(), batch_size=8, num_workers=1, multiprocessing_context="fork")):
        pass


@workload(unit="steps", distributed=True)
def deadlocked(bench: Bench) -> None:
    """A collective that one rank does not join. An item is a step. Timed: the collective."""
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.02)
        if step == 20 and bench.rank == 1:
            time.sleep(3600)
        dist.all_reduce(torch.ones(1, device=bench.device))


@workload(unit="steps", distributed=True)
def bereaved(bench: Bench) -> None:
    """One rank is killed, the other hangs where no Python runs, as in a collective of NCCL. An item is a step."""
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.02)
        if step == 20 and bench.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 20:
            sum(repeat(0))


@workload(unit="steps")
def exits(bench: Bench) -> None:
    """Ends without a word. An item is a step. Timed: a short sleep."""
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.05)
        if step == 8:
            os._exit(7)


@workload(unit="steps")
def hog(bench: Bench) -> None:
    """Takes memory until there is none. An item is a step. Timed: writing 64 MiB."""
    held = []
    for _ in bench.measure(repeat(None), count=1):
        held.append(torch.ones(16 << 20))


@workload(unit="steps")
def recovers(bench: Bench) -> None:
    """A loss that is infinite for some steps. An item is a step. Timed: one optimizer step."""
    model = bench.place(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    began = time.monotonic()
    for _ in bench.measure(repeat(None), count=1):
        time.sleep(0.01)
        bad = 0.6 < time.monotonic() - began < 1.4
        bench.step(model(torch.ones(1, 1)).sum() * (float("inf") if bad else 1.0), optimizer)


@workload(unit="steps", precision="amp")
def overflows(bench: Bench, *, every: int = 3) -> None:
    """A gradient that is infinite now and then, of a finite loss: a root at 0. An item is a step. Timed: the step.

    Options:
        every: so many steps.
    """
    model = bench.place(nn.Linear(1, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for step, _ in enumerate(bench.measure(repeat(None), count=1), 1):
        time.sleep(0.005)
        nothing = model.weight.float().sum() - model.weight.detach().float().sum()
        bench.step(nothing.sqrt() if step % every == 0 else nothing, optimizer)


@workload(unit="steps")
def fails_once(bench: Bench, *, marker: str = "") -> None:
    """The first to come fails. An item is a step. Timed: a short sleep.

    Options:
        marker: file that says that it has happened.
    """
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.02)
        if step == 10:
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            raise RuntimeError("the planned accident")


@workload(unit="steps")
def device_hog(bench: Bench) -> None:
    """Takes device memory until there is none. An item is a step. Timed: writing 1 GiB."""
    held = []
    for _ in bench.measure(repeat(None), count=1):
        held.append(torch.ones(1 << 28, device=bench.device))


@workload(unit="steps")
def foreign_device(bench: Bench) -> None:
    """Reaches for the GPU of a neighbour. An item is a step. Timed: nothing."""
    torch.ones(1, device="cuda:1")
    for _ in bench.measure(repeat(None), count=1):
        pass


@workload(unit="steps", distributed=True)
def collectives(bench: Bench) -> None:
    """All-reduces and nothing else. An item is a step. Timed: one all-reduce of 4 MiB."""
    for _ in bench.measure(repeat(None), count=1):
        dist.all_reduce(torch.ones(1 << 20, device=bench.device))
        time.sleep(0.01)


@workload(unit="steps")
def widens(bench: Bench) -> None:
    """Runs wherever it likes. An item is a step. Timed: the sleep."""
    for _ in bench.measure(repeat(None), count=1):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        time.sleep(0.01)


class Humble(Dataset[torch.Tensor]):
    """Samples of loader processes that give way to others."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.zeros(1)

    @staticmethod
    def give_way(_: int) -> None:
        os.nice(5)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def on_one_cpu() -> None:
    """A thread that binds itself, as libraries do."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 3)
    os.sched_setaffinity(threading.get_native_id(), {min(os.sched_getaffinity(0))})
    time.sleep(3600)


@workload(unit="samples")
def considerate(bench: Bench) -> None:
    """Its loader processes and threads give way and bind themselves. An item is a sample. Timed: the wait for it."""
    loader = DataLoader(
        Humble(), batch_size=8, num_workers=2, multiprocessing_context="fork", worker_init_fn=Humble.give_way
    )
    for step, _ in enumerate(bench.measure(loader)):
        if step % 20 == 0:
            threading.Thread(target=on_one_cpu, daemon=True).start()


@workload(unit="steps")
def leaves_a_daemon(bench: Bench) -> None:
    """Starts a daemon that ends long after it. An item is a step. Timed: the sleep."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print("daemon", os.getpid(), flush=True)
            time.sleep(3600)
        os._exit(0)
    for _ in bench.measure(repeat(None), count=1):
        time.sleep(0.01)


@workload(unit="steps")
def says(bench: Bench, *, event: str = "") -> None:
    """Says something that cannot be, on the descriptor for events. An item is a step. Timed: the sleep.

    Options:
        event: JSON.
    """
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.01)
        if step == 5:
            os.write(4, event.encode() + b"\n")


@workload(unit="steps")
def goes_deaf(bench: Bench) -> None:
    """Closes the descriptor for events and opens a file, which gets its number. An item is a step. Timed: the sleep."""
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.01)
        if step == 5:
            os.close(4)
            os.open(os.devnull, os.O_WRONLY)


class SpeechlessError(Exception):
    """An exception that cannot be told."""

    def __str__(self) -> str:
        raise KeyError("no words")


@workload(unit="steps")
def speechless(bench: Bench) -> None:
    """Raises an exception whose text raises another. An item is a step. Timed: the sleep."""
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.01)
        if step == 5:
            raise SpeechlessError


@workload(unit="steps")
def raises_bytes(bench: Bench) -> None:
    """An exception that names a file which is not called in UTF-8. An item is a step. Timed: a short sleep."""
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.05)
        if step == 8:
            raise RuntimeError(os.fsdecode(b"caf\xe9") + " \ud800")

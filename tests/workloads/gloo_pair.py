"""Runs functions in two ranks of a process group, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

RANKS = 2


def both(rendezvous: Path, jobs: dict[str, Callable[[int], Any]]) -> dict[str, list[Any]]:
    """What each of ``jobs`` returns in rank 0 and 1, or the exception that it raises as text."""
    fresh = multiprocessing.get_context("spawn")  # autograd's threads, if a test before had some, forbid a fork
    pipes = [fresh.Pipe(duplex=False) for _ in range(RANKS)]
    processes = [
        fresh.Process(target=_run, args=(rendezvous, rank, jobs, pipes[rank][1]), daemon=True) for rank in range(RANKS)
    ]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()
    results = [receiver.recv() for receiver, _ in pipes]
    for process in processes:
        process.join(60)
    return {name: [result[name] for result in results] for name in jobs}


def _run(rendezvous: Path, rank: int, jobs: dict[str, Callable[[int], Any]], results: Any) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", f"file://{rendezvous}", rank=rank, world_size=RANKS)
    found = {}
    for name, job in jobs.items():
        dist.barrier()
        try:
            found[name] = job(rank)
        except Exception as error:  # noqa: BLE001  # the test looks at it
            found[name] = f"{type(error).__name__}: {error}"
    results.send(found)
    dist.barrier()  # neither leaves while the other still talks to it
    dist.destroy_process_group()

"""Writes the stacks of a tenant's processes into its log before it is killed.

In workers, ranks and loaders, Python writes all stacks on SIGUSR1 (`faulthandler.register`, inherited by fork). The
kernel's own view comes first, since a process in uninterruptible sleep cannot answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable

from milabench_ng.fence.kernel.readings import host_text
from milabench_ng.fence.killing import NotOursError, Proof, send

SETTLE_S = 0.1
"""Time for one process to write its stacks: signal handlers run between C instructions, whatever Python does."""
STACKS = 16
"""How many processes write theirs: worker, ranks and first loaders; further ones show nothing new."""


async def dump_stacks(pids: Iterable[int], launch: Proof, log: int) -> None:
    """Have the first of a launch's processes write their stacks to ``log``, in turn. Stopped ones are continued."""
    found = sorted(pids)
    for pid in found[:STACKS]:
        say(log, f"stacks of process {pid}: {kernel_view(pid)}")
        if _would_answer(pid):
            try:
                for number in (signal.SIGUSR1, signal.SIGCONT):
                    send(number, [pid], launch)
            except NotOursError as error:
                say(log, str(error))
            await asyncio.sleep(SETTLE_S)
    if found[STACKS:]:
        say(log, f"and {len(found) - STACKS} more processes")


def say(log: int, text: str) -> None:
    """Write to a log what its launch did not; on a full disk, nothing."""
    with contextlib.suppress(OSError):
        os.write(log, f"\nmnb: {text}\n".encode())


def kernel_view(pid: int) -> str:
    """Name, state and, if this user may read it, the place in the kernel where a process waits."""
    fields = _status(pid)
    words = [fields.get("Name", "gone"), f"state {fields.get('State', 'unknown')}"]
    for name in ("wchan", "stack"):
        text = host_text(f"{pid}/{name}")
        words += [f"{name}: {text}"] if text.strip("0") else []
    return ", ".join(words)


def _would_answer(pid: int) -> bool:
    """Whether the process catches SIGUSR1, which would end it otherwise."""
    return bool(int(_status(pid).get("SigCgt", "0"), 16) >> (signal.SIGUSR1 - 1) & 1)


def _status(pid: int) -> dict[str, str]:
    lines = host_text(f"{pid}/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

"""Writes the stacks of a tenant's processes into its log before it is killed.

In workers, ranks and loaders, Python writes all stacks on SIGUSR1 (`faulthandler.register`, inherited by fork). The
kernel's own view comes first, since a process in uninterruptible sleep cannot answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from pathlib import Path

SETTLE_S = 0.1
"""Time for one process to write its stacks: signal handlers run between C instructions, whatever Python does."""


async def dump_stacks(pids: Iterable[int], log: int) -> None:
    """Have each process of ``pids`` in turn write its stacks to ``log``. Stopped ones are continued for it."""
    for pid in pids:
        os.write(log, f"\nmnb: stacks of process {pid}: {kernel_view(pid)}\n".encode())
        if not _would_answer(pid):
            continue
        for number in (signal.SIGUSR1, signal.SIGCONT):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                break
        await asyncio.sleep(SETTLE_S)


def kernel_view(pid: int) -> str:
    """Name, state and, if this user may read it, the place in the kernel where a process waits."""
    fields = _status(pid)
    words = [fields.get("Name", "gone"), f"state {fields.get('State', 'unknown')}"]
    for name in ("wchan", "stack"):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text().strip()
        except OSError:
            continue
        words += [f"{name}: {text}"] if text.strip("0") else []
    return ", ".join(words)


def _would_answer(pid: int) -> bool:
    """Whether the process catches SIGUSR1, which would end it otherwise."""
    return bool(int(_status(pid).get("SigCgt", "0"), 16) >> (signal.SIGUSR1 - 1) & 1)


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

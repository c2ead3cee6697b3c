"""How much memory this process and its device have used, for a trial of a batch size."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch


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

"""Finds NVIDIA's Multi-Process Service, through which CUDA programs of several tenants share a GPU at the same time.

Without it they take turns. ``mnb`` starts and stops no daemon: it records whether the operator runs one. CUDA programs
look for it in ``CUDA_MPS_PIPE_DIRECTORY``, else in ``/tmp/nvidia-mps`` (NVIDIA's guide to MPS, environment variables).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from milabench_ng.node.pci_gpus import kernel_text

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_DAEMON = "nvidia-cuda-mps-control"[:15]
"""Its name in ``/proc``, which has 15 characters of it (proc(5))."""


def find_mps(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """The daemon that CUDA programs of this environment would find, in words; None if there is none.

    A daemon outside the container has no process here, so its control pipe alone counts.
    """
    pipes = environ.get(_PIPES) or "/tmp/nvidia-mps"  # where the daemon puts them
    if not (root / pipes.lstrip("/") / "control").exists():
        return None
    daemons = [path.parent.name for path in root.glob("proc/[0-9]*/comm") if kernel_text(path) == _DAEMON]
    return f"{pipes}, {f'process {min(daemons, key=int)}' if daemons else 'no process seen'}"

"""Has the NVIDIA driver's device files made before tenants need them: those may not gain the rights to make them.

The CUDA library calls `nvidia-modprobe` (setuid root) for files that are missing: of unified memory, whose module is
loaded at its first use, and of MIG instances.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_PATIENCE_S = 20.0


def missing(root: Path = Path("/")) -> Iterator[list[str]]:
    """Commands that make what is missing."""
    if (root / "dev/nvidiactl").exists() and not (root / "dev/nvidia-uvm").exists():
        yield ["nvidia-modprobe", "-u", "-c=0"]
    for capability in sorted((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*/**/access")):
        yield ["nvidia-modprobe", "-f", f"/{capability.relative_to(root)}"]


def make_device_nodes() -> None:
    """Make them, as far as this user may; does nothing without the driver."""
    for command in missing() if shutil.which("nvidia-modprobe") else ():
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs: tenants will say so
            subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=_PATIENCE_S)

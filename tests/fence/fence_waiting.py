"""Waiting for what the kernel does in its own time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from milabench_ng.fence.kernel.processes import Process, identify

# An emulated machine is many times slower: tests/vm says how patient to be there.
_PATIENCE = float(os.environ.get("MNB_TEST_PATIENCE", "1"))


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Poll until it holds; False if it does not within the time."""
    end = time.monotonic() + seconds * _PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def process_of(pid: int) -> Process:
    """The living process with this pid."""
    process = identify(pid)
    assert process
    return process

"""The process of a worker server, and the connection with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from milabench_ng.run.execution.interruption import SIGNALS
from milabench_ng.worker.requests import MESSAGE_BYTES, python_command


class Link(NamedTuple):
    """A server's process, and what is known of it."""

    connection: socket.socket
    process: subprocess.Popen[bytes]
    death: int
    """A pidfd, readable when the process has ended."""


def open_link(environ: Mapping[str, str]) -> Link:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for side in (ours, theirs):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
    heeded = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the server unblocks them once it ignores them
    try:
        process = subprocess.Popen(
            python_command(environ, "milabench_ng.worker.server", str(theirs.fileno())),
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            # One thread: BLAS libraries would start their pools at import, and a fork would lose them.
            env={**environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heeded)
    theirs.close()
    ours.setblocking(False)
    return Link(ours, process, os.pidfd_open(process.pid))


def how_ended(status: int) -> str:
    """In words."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

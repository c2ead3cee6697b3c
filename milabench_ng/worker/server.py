"""The worker server: imports torch and all workloads once, touches no device, and forks warm workers.

It has one thread, so that forking is safe, and is outside every tenant's fence, so that its memory is charged to no
share; a forked worker is charged for the pages that it writes. One packet is one message.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys

import msgspec

from milabench_ng.fence.entry import adopt_orphans, die_with
from milabench_ng.fence.kernel.processes import identify
from milabench_ng.model.plain import whole_json
from milabench_ng.worker.requests import MESSAGE_BYTES, Answer, AnyRequest, Exited, Serving, Spawn, Spawned, Unable

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that a terminal or batch system sends to all processes of a job."""


def main(descriptor: int) -> None:
    """Serve on the socket ``descriptor`` until the orchestrator closes its end."""
    server_pid = os.getpid()
    die_with(os.getppid())
    adopt_orphans()
    connection = socket.socket(fileno=descriptor)
    children = select_wakeup()
    from milabench_ng.worker import answers, warm

    answers.import_everything()
    gc.collect()
    gc.freeze()
    reply(connection, Serving(id=0, threads=len(os.listdir("/proc/self/task"))))
    decoder: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
    running: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([descriptor, children], [], [])
        if children in readable:
            os.read(children, 4096)
            reap(connection, running)
        if descriptor not in readable:
            continue
        try:
            packet, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
        except ConnectionResetError:  # closed while an answer was in flight
            return
        if not packet:
            return
        request = decoder.decode(packet)
        try:
            pid = os.fork()
        except OSError as error:  # a limit on processes, or no memory
            close_all(descriptors)
            reply(connection, Unable(id=request.id, message=f"the worker server cannot fork: {error.strerror}"))
            continue
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)  # SIGTERM ends loaders and ranks
            os.close(children)
            if isinstance(request, Spawn):
                connection.close()
                warm.run(request.task, server_pid, *descriptors)
            answers.answer(request, connection, server_pid)
        close_all(descriptors)
        running[pid] = request.id
        if isinstance(request, Spawn):
            worker = identify(pid)
            assert worker, "a child is listed until it is waited for"
            reply(connection, Spawned(id=request.id, pid=worker.pid, start=worker.start))


def close_all(descriptors: list[int]) -> None:
    """Close what came with a request."""
    for descriptor in descriptors:
        os.close(descriptor)


def reply(connection: socket.socket, answer: Answer) -> None:
    """Send one answer; do nothing if the orchestrator is gone."""
    try:
        connection.sendall(whole_json(answer))
    except ConnectionError:
        sys.exit(0)


def reap(connection: socket.socket, running: dict[int, int]) -> None:
    """Report the exit status of every worker that has ended, exactly as ``waitpid`` gives it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in running:
            reply(connection, Exited(id=running.pop(pid), status=os.waitstatus_to_exitcode(status)))


def select_wakeup() -> int:
    """A descriptor that becomes readable when a child has ended."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # the orchestrator handles them
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    return reading


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)  # nothing to save, and tearing torch down takes time

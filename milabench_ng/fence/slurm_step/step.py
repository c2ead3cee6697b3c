"""The two programs that carry a tenant's processes into a Slurm step: the holder, which waits there, and its caller.

Slurm starts what is in a step, therefore nothing there is our child or can inherit from us. `hold` is what Slurm
starts: it waits on a socket and forks what is ordered. `call` takes the place of the tenant's process: it hands over
its descriptors, arguments and environment, waits, and ends as that process did, by the same signal if it was one.

Uses only the standard library, and what does so, too: `python -I -S step.py hold NAME | call NAME PARENT DESCRIPTORS --
argv...`. The socket is abstract (unix(7)): it leaves no file, and each side asks the kernel who the other is.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys

if __name__ == "__main__":  # isolated, so the package is not on the path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))

from milabench_ng.fence.entry import EXIT_NOT_FOUND, EXIT_REFUSED, MAX_DESCRIPTORS, EntryError, die_with
from milabench_ng.fence.kernel.processes import below_us
from milabench_ng.fence.killing import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGE_BYTES = 1 << 20


def open_socket() -> socket.socket:
    """A socket that keeps message boundaries and has room for an environment."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
    return made


def connect(name: str) -> tuple[socket.socket, int]:
    """Connect to the holder of this name; return its pid too. Raises OSError, or PermissionError if it is not ours."""
    connection = open_socket()
    connection.connect(f"\0{name}")
    pid, uid = peer(connection)
    if uid != os.geteuid():
        raise PermissionError(f"the socket {name} belongs to user {uid}")
    return connection, pid


def peer(connection: socket.socket) -> tuple[int, int]:
    """The pid and user at the other end (SO_PEERCRED)."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


class Holder:
    """Starts processes for its callers, and kills them when their caller, or the first caller, is gone."""

    def __init__(self, server: socket.socket, first: socket.socket) -> None:
        self._server = server
        self._first = first
        self._callers: dict[int, tuple[socket.socket, int]] = {}
        """The caller's connection and the pid of each process, by pidfd."""
        self._abandoned: set[int] = set()
        self._poll = select.poll()
        for one in (server, first):
            self._poll.register(one, select.POLLIN)

    def serve(self) -> None:
        """Serve until the first caller, the orchestrator, is gone."""
        while True:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if self._first.fileno() in ready:
                break
            for descriptor in ready:
                if descriptor == self._server.fileno():
                    self._accept()
                elif descriptor in self._callers:
                    self._tell(descriptor)
                else:
                    self._abandon(descriptor)
        send(signal.SIGKILL, [pid for _, pid in self._callers.values()], below_us())

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        if peer(connection)[1] != os.geteuid():
            connection.close()
            return
        message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 16)
        if not message:
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            become(json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        child = os.pidfd_open(pid)
        self._callers[child] = (connection, pid)
        for one in (child, connection.fileno()):
            self._poll.register(one, select.POLLIN)

    def _tell(self, child: int) -> None:
        """Tell the caller how its process ended."""
        connection, pid = self._callers.pop(child)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._poll.unregister(child)
        os.close(child)
        if connection.fileno() not in self._abandoned:
            self._poll.unregister(connection)
        self._abandoned.discard(connection.fileno())
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(str(status).encode())
        connection.close()

    def _abandon(self, descriptor: int) -> None:
        """Kill the process of a caller that is gone. The rest follows when it has ended."""
        for connection, pid in self._callers.values():
            if connection.fileno() == descriptor:
                send(signal.SIGKILL, [pid], below_us())
                self._poll.unregister(descriptor)  # it would stay ready
                self._abandoned.add(descriptor)


def become(order: dict[str, object], descriptors: Sequence[int]) -> None:
    """Replace this process by the ordered one, with the caller's descriptors as 0, 1, ... and no others."""
    high = [os.dup2(descriptor, 100 + place, False) for place, descriptor in enumerate(descriptors)]
    for place, descriptor in enumerate(high):
        os.dup2(descriptor, place)
    os.closerange(len(high), MAX_DESCRIPTORS)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # this interpreter ignores them; the tenant must not inherit that
        signal.signal(ignored, signal.SIG_DFL)
    argv, environment = order["argv"], order["environment"]
    assert isinstance(argv, list)
    assert isinstance(environment, dict)
    try:
        os.chdir(str(order["folder"]))
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        print(f"mnb: cannot start {argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(EXIT_NOT_FOUND)


def hold(name: str) -> int:
    """Run in the step, started by Slurm: announce itself, then serve."""
    server = open_socket()
    server.bind(f"\0{name}")
    server.listen()
    print(os.getpid(), flush=True)
    while True:
        first, _ = server.accept()
        if peer(first)[1] == os.geteuid():
            break
        first.close()
    Holder(server, first).serve()
    return 0


def call(name: str, parent_pid: int, descriptors: int, argv: Sequence[str]) -> int:
    """Have `argv` run in the step of this name in this process's place, and end as it did."""
    try:
        die_with(parent_pid)
    except EntryError:
        return EXIT_REFUSED
    os.closerange(descriptors, MAX_DESCRIPTORS)
    order = {"argv": list(argv), "environment": dict(os.environ), "folder": os.getcwd()}
    try:
        connection, _ = connect(name)
        connection.set_inheritable(False)
        socket.send_fds(connection, [json.dumps(order).encode()], list(range(descriptors)))
    except OSError as error:
        print(f"mnb: the Slurm step of this tenant cannot be reached: {error.strerror or error}", file=sys.stderr)
        return EXIT_REFUSED
    os.closerange(0, descriptors)  # the pipe ends are the other process's now
    status = connection.recv(64)
    return end_as(int(status) if status else -signal.SIGKILL)


def end_as(status: int) -> int:
    """The exit status to return; does not return for a signal, but dies of it too."""
    if status >= 0:
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return EXIT_REFUSED


def main(arguments: list[str]) -> int:
    """Run `hold NAME`, or `call NAME PARENT DESCRIPTORS -- argv...`."""
    what, name, *rest = arguments
    if what == "hold":
        return hold(name)
    parent_pid, descriptors, _, *argv = rest
    return call(name, int(parent_pid), int(descriptors), argv)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    os._exit(status)  # standard output may be closed by now

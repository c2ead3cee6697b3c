"""The network within the node."""

import socket

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.units import MIB
from milabench_ng.workloads.antagonists.pressing import Busy, Crew, paced


@workload(unit="MiB", bound="cpu", cpu_only=True, ram_gib=0.5)
def loopback(bench: Bench, *, mib: Count = 64, busy: Busy = 1.0) -> None:
    """Send bytes over TCP within the node: presses on the kernel's network code and on memory copies.

    A connection over 127.0.0.1 for each two CPUs of the tenant, with a thread at either end. An item is one MiB
    sent. Timed: everything, pauses included.

    Options:
        mib: MiB that every connection carries in a step.
        busy: share of the time in which it works.
    """
    pairs = [connection() for _ in range(max(1, bench.processes(1 << 16) // 2))]
    data, room = bytes(MIB), [bytearray(MIB) for _ in pairs]

    def work(number: int) -> None:
        sender, receiver = pairs[number // 2]
        try:
            if number % 2:
                receive(receiver, room[number // 2], mib * MIB)
            else:
                for _ in range(mib):
                    sender.sendall(data)
        except OSError:
            for end in pairs[number // 2]:
                end.shutdown(socket.SHUT_RDWR)  # the thread at the other end must not wait for ever
            raise

    with Crew(2 * len(pairs), work) as crew:
        for _ in bench.measure(paced(busy), count=len(pairs) * mib):
            crew.round()
    for pair in pairs:
        for end in pair:
            end.close()


def connection() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection: the one that sends and the one that receives."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    return sender, receiver


def receive(end: socket.socket, room: bytearray, size: int) -> None:
    """Read ``size`` bytes into ``room``, over and over. Raises ConnectionError if the other end closes."""
    while size:
        found = end.recv_into(room, min(size, len(room)))
        if not found:
            raise ConnectionError("the other end has closed")
        size -= found

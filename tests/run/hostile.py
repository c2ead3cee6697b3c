"""A workload whose worker says that it is another process: before it has said a true word, or later.

Every second worker that imports this lies, in the order of ``MNB_TEST_LIES``, a JSON file of lists of words for pids.
A list that begins with `late` is said at work, one with `only` in place of the true word.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from itertools import repeat

from milabench_ng.bench import Bench, workload
from milabench_ng.bench.channel import PipeChannel
from milabench_ng.model.events import Entered, Event, encode
from tests.run.processes import children


@workload(unit="steps")
def lies(bench: Bench) -> None:
    """Steps of 10 ms. An item is a step. Timed: the sleep."""
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.01)
        if step == 5:
            os.write(4, LATER)


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def neighbour() -> int:
    """The other worker of the batch."""
    while True:
        for pid in children(os.getppid()):
            if pid != os.getpid():
                return pid
        time.sleep(0.01)


def dead() -> int:
    """A process that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def pid_of(word: str) -> int:
    """The pid that a word stands for."""
    server = os.getppid()
    found = {
        "server": lambda: server,
        "mnb": lambda: parent(server),
        "shell": lambda: parent(parent(server)),
        "neighbour": neighbour,
        "dead": dead,
    }
    return found[word]() if word in found else int(word)


def is_worker() -> bool:
    """Whether descriptors 3 and 4 are those of a worker: the server imports this too, to describe the workload."""
    try:
        pipes = all(stat.S_ISFIFO(os.fstat(number).st_mode) for number in (3, 4))
    except OSError:
        return False
    return pipes and len(os.listdir("/proc/self/fd")) == 6  # with that of the folder


def speak(place: str) -> bytes:
    """Say the next lie, if it is this worker's turn; what is to be said later."""
    with open(f"{place}.turn", "a+") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        turn.seek(0)
        number = len(turn.read())
        turn.write(".")
    if number % 2:
        return b""
    with open(place) as file:
        words = json.load(file)[number // 2]
    how = words.pop(0) if words[0] in ("late", "only") else ""
    said = b"".join(encode(Entered(pid=pid_of(word), torch_threads=1)) for word in words)
    if how == "only":
        keep_the_truth()
    os.write(4, b"" if how == "late" else said)
    return said if how == "late" else b""


def keep_the_truth() -> None:
    """Say nothing of it."""
    send = PipeChannel.send

    def lie(channel: PipeChannel, event: Event) -> None:
        if not isinstance(event, Entered):
            send(channel, event)

    PipeChannel.send = lie  # type: ignore[method-assign]


LATER = speak(os.environ["MNB_TEST_LIES"]) if "MNB_TEST_LIES" in os.environ and is_worker() else b""

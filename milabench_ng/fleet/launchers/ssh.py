"""``ssh``: bare nodes, through ClusterShell: sets and groups of nodes, an ssh client for each.

A node that is left early, since the command was interrupted or its connection is lost, goes on by itself: the run on it
hears no signal. The same script goes on with it later.
"""

from __future__ import annotations

import queue
import random
import re
import resource
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task

from milabench_ng.fleet.launchers.interface import NODE_WORD, Asked, Ended, Heard, Said
from milabench_ng.fleet.nodes import NodeName, node_set
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short

CONNECT_S = 30
"""How long a node may take to answer at first."""
_OPTIONS = ("-oLogLevel=ERROR", "-oServerAliveInterval=15", "-oServerAliveCountMax=8")
"""A node that says nothing for two minutes is lost."""
_LOST = 255
"""What ssh ends with if it did not reach the node, or lost it."""
_FILES = 3
"""Open files of an ssh client: its three streams."""
_REFUSED = re.compile(r"(kex|ssh)_exchange_identification")
"""What ssh says if the server, or a jump host on the way, hangs up before anything has begun."""
_TRIES = 7
_FIRST_WAIT_S = 1.0
"""Before the second try; twice as long before each further one."""
_MAX_STARTUPS = "too many connections at once? Raise MaxStartups in sshd_config of the node, or of its jump host"

Event = tuple[NodeName, bytes] | tuple[NodeName, int | None]


class Ssh:
    """Nodes with an ssh server."""

    arguments = ()
    head = '"${SSH_CONNECTION%% *}"'

    def __init__(self, nodes: tuple[NodeName, ...], options: tuple[str, ...]) -> None:
        """``options``: of ssh; they win over those of mnb."""
        self.nodes = nodes
        self._options = options

    @contextmanager
    def run(self, nodes: Collection[NodeName], script: str, heard: Heard) -> Iterator[Iterator[Ended]]:
        """See `Launcher.run`."""
        _allow_files(_FILES * len(nodes))
        task = Task()  # in a thread of its own
        task.set_info("fanout", max(1, len(nodes)))  # a node works as long as its client lives
        task.set_info("connect_timeout", CONNECT_S)
        task.set_info("ssh_options", shlex.join((*self._options, *_OPTIONS)))
        for option in ("stdout_msgtree", "stderr_msgtree"):
            task.set_default(option, False)

        def start(node: NodeName) -> None:
            command = f"sh -c {shlex.quote(script.replace(NODE_WORD, node))}"
            task.shell(command, nodes=node, handler=told, stderr=True, stdin=False)

        def start_later(node: NodeName, wait_s: float) -> None:
            task.timer(wait_s, handler=_Later(lambda: start(node)))

        told = _Told(nodes, start_later)
        for node in nodes:
            start(node)
        task.resume()
        try:
            yield told.ended(heard)
        finally:
            task.abort()
            task.join()


def make(asked: Asked) -> Ssh:
    """The nodes of ``--hosts``. Raises InputError for what is no set of nodes."""
    if asked.known:
        return Ssh(asked.known, asked.engine)
    if asked.hosts is None or asked.count is not None:
        raise InputError("--launcher ssh takes --hosts, and no --nodes. Try --hosts 'gpu[001-016]'")
    return Ssh(node_set(asked.hosts, f"--hosts {short(asked.hosts)}"), asked.engine)


class _Told(EventHandler):  # type: ignore[misc]  # ClusterShell has no types
    """What ClusterShell's thread tells, for the one that waits. Whoever is refused is tried again."""

    def __init__(self, nodes: Collection[NodeName], start_later: Callable[[NodeName, float], None]) -> None:
        self._start_later = start_later
        self._tries = dict.fromkeys(nodes, 1)
        self._said = {node: Said() for node in nodes}
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def ev_read(self, _worker: object, node: NodeName, sname: str, msg: bytes) -> None:
        if sname == "stdout":
            self._events.put((node, msg))
        else:
            self._said[node].add(msg)

    def ev_hup(self, _worker: object, node: NodeName, rc: int | None) -> None:
        tries = self._tries[node]
        if rc == _LOST and tries < _TRIES and _REFUSED.search(self._said[node].text):
            self._tries[node] = tries + 1
            self._said[node] = Said()
            self._start_later(node, random.uniform(0.5, 1.0) * _FIRST_WAIT_S * 2 ** (tries - 1))
            return
        self._events.put((node, rc))

    def ended(self, heard: Heard) -> Iterator[Ended]:
        """Pass lines on, and yield each node as it ends."""
        missing = len(self._said)
        while missing:
            node, what = self._events.get()
            if isinstance(what, bytes):
                heard(node, what)
                continue
            missing -= 1
            yield self._ended(node, what)

    def _ended(self, node: NodeName, status: int | None) -> Ended:
        said = self._said[node].text
        if self._tries[node] == _TRIES and _REFUSED.search(said):
            said = f"{_MAX_STARTUPS} ({said})"
        if status is None or status == _LOST:
            return Ended(node, None, said or "ssh lost the connection")
        return Ended(node, status, said)


class _Later(EventHandler):  # type: ignore[misc]
    """What ClusterShell's thread does when a timer fires."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do

    def ev_timer(self, _timer: object) -> None:
        """The time is over."""
        self._do()


def _allow_files(count: int) -> None:
    """Let this process have so many files open, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + count
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

"""``ssh``: bare nodes, through ClusterShell: sets and groups of nodes, an ssh client for each.

A node that is left early, since the command was interrupted or its connection is lost, goes on by itself: the run on it
hears no signal. The same script goes on with it later.
"""

from __future__ import annotations

import queue
import resource
import shlex
from collections.abc import Collection, Iterator
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
        told = _Told(nodes)
        task = Task()  # in a thread of its own
        task.set_info("fanout", max(1, len(nodes)))  # a node works as long as its client lives
        task.set_info("connect_timeout", CONNECT_S)
        task.set_info("ssh_options", shlex.join((*self._options, *_OPTIONS)))
        for option in ("stdout_msgtree", "stderr_msgtree"):
            task.set_default(option, False)
        for node in nodes:
            command = f"sh -c {shlex.quote(script.replace(NODE_WORD, node))}"
            task.shell(command, nodes=node, handler=told, stderr=True, stdin=False)
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
    """What ClusterShell's thread tells, for the one that waits."""

    def __init__(self, nodes: Collection[NodeName]) -> None:
        self._said = {node: Said() for node in nodes}
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def ev_read(self, _worker: object, node: NodeName, sname: str, msg: bytes) -> None:
        """A line of a node."""
        if sname == "stdout":
            self._events.put((node, msg))
        else:
            self._said[node].add(msg)

    def ev_hup(self, _worker: object, node: NodeName, rc: int | None) -> None:
        """A node has ended."""
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
        if status is None or status == _LOST:
            return Ended(node, None, said or "ssh lost the connection")
        return Ended(node, status, said)


def _allow_files(count: int) -> None:
    """Let this process have so many files open, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + count
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

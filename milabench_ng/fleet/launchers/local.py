"""``local``: nodes that are processes of this machine, for tests and to rehearse on a laptop.

They share the machine, so their rates say nothing about it.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial

from milabench_ng.fleet.launchers.interface import NODE_WORD, Asked, Ended, Heard, Said
from milabench_ng.fleet.launchers.processes import Child, ending, turns
from milabench_ng.fleet.nodes import NodeName, node_name
from milabench_ng.model.errors import InputError

MOST = 32
"""Nodes: each is several processes of this machine."""


class Local:
    """Starts a shell for each node."""

    arguments = ("--allow-concurrent",)
    head = "127.0.0.1"

    def __init__(self, nodes: tuple[NodeName, ...]) -> None:
        self.nodes = nodes

    @contextmanager
    def run(self, nodes: Collection[NodeName], script: str, heard: Heard) -> Iterator[Iterator[Ended]]:
        """See `Launcher.run`."""
        said = {node: Said() for node in nodes}
        shells = {
            Child(["sh", "-c", script.replace(NODE_WORD, node)], partial(heard, node), said[node].add): node
            for node in nodes
        }
        with ending(tuple(shells)):
            yield (_ended(shell, shells[shell], said) for shell in turns(tuple(shells)) if not shell.streams)


def make(asked: Asked) -> Local:
    """As many nodes as ``--nodes``, called ``local-1`` and so on. Raises InputError for anything else."""
    if asked.known:
        return Local(asked.known)
    if asked.hosts is not None or asked.engine:
        raise InputError("--launcher local takes --nodes N, and neither --hosts nor options of an engine")
    if asked.count is None:
        raise InputError("--launcher local: say how many nodes to start. Try --nodes 2")
    if asked.count > MOST:
        raise InputError(f"--nodes {asked.count}: nodes of --launcher local share this machine. Start at most {MOST}")
    return Local(tuple(node_name(f"local-{number}") for number in range(1, asked.count + 1)))


def _ended(shell: Child, node: NodeName, said: dict[NodeName, Said]) -> Ended:
    """How a shell ended that has closed both of its streams."""
    status = shell.process.wait()
    if status < 0:
        return Ended(node, None, f"its process was killed ({signal.Signals(-status).name})")
    return Ended(node, status, said[node].text)

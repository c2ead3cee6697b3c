"""``local``: nodes that are processes of this machine, for tests and to rehearse on a laptop.

They share the machine, so their rates say nothing about it.
"""

from __future__ import annotations

import selectors
import signal
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import IO

from milabench_ng.fence.killing import signal_child
from milabench_ng.fleet.launchers.interface import MOST_SAID, NODE_WORD, Asked, Ended, Heard, last_words
from milabench_ng.fleet.nodes import NodeName, node_name
from milabench_ng.model.errors import InputError

_BLOCK = 1 << 16


class Local:
    """Starts a shell for each node."""

    arguments = ("--allow-concurrent",)

    def __init__(self, nodes: tuple[NodeName, ...]) -> None:
        self.nodes = nodes

    @contextmanager
    def run(self, nodes: Collection[NodeName], script: str, heard: Heard) -> Iterator[Iterator[Ended]]:
        """See `Launcher.run`."""
        running = [Running(node, script.replace(NODE_WORD, node)) for node in nodes]
        try:
            yield _ended(running, heard)
        finally:
            for one in running:
                one.end()


def make(asked: Asked) -> Local:
    """As many nodes as ``--nodes``, called ``local-1`` and so on. Raises InputError for anything else."""
    if asked.known:
        return Local(asked.known)
    if asked.hosts is not None or asked.engine:
        raise InputError("--launcher local takes --nodes N, and neither --hosts nor options of an engine")
    if asked.count is None or asked.count < 1:
        raise InputError("--launcher local: say how many nodes to start. Try --nodes 2")
    return Local(tuple(node_name(f"local-{number}") for number in range(1, asked.count + 1)))


class Running:
    """A shell at work, in a process group of its own."""

    def __init__(self, node: NodeName, script: str) -> None:
        self.node = node
        self.said = b""
        self._started = b""
        """Of a line whose end has not come yet."""
        self._process = subprocess.Popen(
            ["sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output: IO[bytes] = self._process.stdout
        self.errors: IO[bytes] = self._process.stderr

    def hear(self, content: bytes, heard: Heard) -> None:
        """Output: told by lines."""
        *lines, self._started = (self._started + content).split(b"\n")
        for line in lines:
            heard(self.node, line)

    def ended(self, heard: Heard) -> Ended:
        """Wait for its end, which is near: it has closed both outputs."""
        if self._started:
            heard(self.node, self._started)
        status = self._process.wait()
        if status < 0:
            return Ended(self.node, None, f"its process was killed ({signal.Signals(-status).name})")
        return Ended(self.node, status, last_words(self.said))

    def end(self) -> None:
        """Ask it to end, and wait until it has."""
        if self._process.poll() is None:
            signal_child(self._process, signal.SIGTERM)
        self._process.wait()
        self.output.close()
        self.errors.close()


def _ended(running: list[Running], heard: Heard) -> Iterator[Ended]:
    """Read what all of them print, and yield each when both of its outputs are closed."""
    with selectors.DefaultSelector() as selector:
        open_files = {one.node: 2 for one in running}
        for one in running:
            selector.register(one.output, selectors.EVENT_READ, one)
            selector.register(one.errors, selectors.EVENT_READ, one)
        while selector.get_map():
            for key, _ in selector.select():
                one, file = key.data, key.fileobj
                assert isinstance(one, Running)
                content = file.read1(_BLOCK)  # type: ignore[union-attr]
                if content and file is one.output:
                    one.hear(content, heard)
                elif content:
                    one.said = (one.said + content)[-MOST_SAID:]
                else:
                    selector.unregister(file)
                    open_files[one.node] -= 1
                    if not open_files[one.node]:
                        yield one.ended(heard)

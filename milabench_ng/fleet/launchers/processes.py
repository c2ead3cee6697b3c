"""Processes of this machine whose output is heard while they work."""

from __future__ import annotations

import selectors
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, cast

from milabench_ng.fence.killing import signal_child

_BLOCK = 1 << 16
_LONGEST = 1 << 20
"""Bytes of a line."""


class Lines:
    """Calls with each line of a stream, without its end; a longer one than `_LONGEST` comes in parts."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self._heard = heard
        self._rest = b""

    def add(self, content: bytes) -> None:
        """What was read."""
        *lines, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._heard(line)

    def close(self) -> None:
        """The stream has ended."""
        if self._rest:
            self._heard(self._rest)


class Child:
    """A process in a session of its own, so that Ctrl-C at the terminal reaches only this one."""

    def __init__(self, words: Sequence[str], output: Callable[[bytes], None], errors: Callable[[bytes], None]) -> None:
        """``output``, ``errors``: called with the lines of both streams."""
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.streams = {
            cast(IO[bytes], self.process.stdout): Lines(output),
            cast(IO[bytes], self.process.stderr): Lines(errors),
        }

    def end(self) -> None:
        """Ask it to end. Nobody reads what it still prints, so that must not hold it up."""
        if self.process.poll() is None:
            signal_child(self.process, signal.SIGTERM)
        for stream in self.streams:
            stream.close()


@contextmanager
def ending(children: Sequence[Child]) -> Iterator[None]:
    """End the children that are still at work at the end of the context: all are asked before one is waited for."""
    try:
        yield
    finally:
        for child in children:
            child.end()
        for child in children:
            child.process.wait()


def turns(children: Sequence[Child]) -> Iterator[Child]:
    """Read what the children print, and yield one after each read; the last time, both of its streams are closed."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            for stream in child.streams:
                selector.register(stream, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select():
                child = cast(Child, key.data)
                stream = cast(IO[bytes], key.fileobj)
                content = stream.read1(_BLOCK)  # type: ignore[attr-defined]
                if content:
                    child.streams[stream].add(content)
                else:
                    selector.unregister(stream)
                    child.streams.pop(stream).close()
                    stream.close()
                yield child

"""What a launcher is asked and what it offers: it runs one script on many nodes, and tells how it ended on each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from milabench_ng.fleet.nodes import NodeName

NODE_WORD = "{node}"
"""What a launcher replaces in a script by the name of the node."""
OUTPUT = "mnb-output:"
"""The line before what a script has for the head: login shells may print something first, such as a banner."""
MOST_SAID = 1 << 12
"""Bytes of a node's error output that are kept, from its end."""

Heard = Callable[[NodeName, bytes], None]
"""Called with each line of a node's standard output, without its end."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a launcher is made of."""

    count: int | None = None
    """``--nodes``."""
    hosts: str | None = None
    """``--hosts``."""
    known: tuple[NodeName, ...] = ()
    """The nodes of a fleet that goes on, instead of the two."""
    engine: tuple[str, ...] = ()
    """Options of the engine."""


class Ended(msgspec.Struct, frozen=True):
    """How a script ended on a node."""

    node: NodeName
    status: int | None
    """Its exit status; None if the node was not reached or died."""
    said: str
    """The end of its error output, or why there is no status."""


class Launcher(Protocol):
    """Reaches a set of nodes."""

    nodes: tuple[NodeName, ...]
    """Those that it was asked for."""
    arguments: tuple[str, ...]
    """Options that `mnb jobs` needs on such nodes."""
    head: str
    """The address of this host as its nodes reach it: a word of sh, which they evaluate."""

    def run(self, nodes: Collection[NodeName], script: str, heard: Heard) -> AbstractContextManager[Iterator[Ended]]:
        """Start ``script`` (sh) on all ``nodes`` at once. Yields each node once, as it ends.

        Leaving the context early asks the nodes to end by SIGTERM, as far as the engine can.
        """
        ...


Maker = Callable[[Asked], Launcher]
"""What an entry point leads to. Raises InputError for what it cannot do."""


class Said:
    """The end of an error output."""

    def __init__(self) -> None:
        self._kept = b""

    def add(self, line: bytes) -> None:
        self._kept = (self._kept + line + b"\n")[-MOST_SAID:]

    @property
    def text(self) -> str:
        """What is kept."""
        return self._kept.decode(errors="backslashreplace").strip()

"""Shows the progress of a run on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from rich.console import Console

from milabench_ng.run.display.lines import PlainLines
from milabench_ng.run.display.terminal import Terminal
from milabench_ng.run.events.bus import Bus


@contextmanager
def shown() -> Iterator[Bus]:
    """A bus whose events a user sees: a live table in a terminal, lines elsewhere."""
    console = Console(stderr=True)
    with closing(Bus(Terminal(console) if console.is_terminal else PlainLines(console))) as bus:
        yield bus

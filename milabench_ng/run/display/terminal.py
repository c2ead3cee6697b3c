"""Output to a terminal: lines that stay, and below them a display of the tenants that changes."""

from __future__ import annotations

import math

from rich.console import Console
from rich.live import Live
from rich.text import Text

from milabench_ng.model.plain import plain, plain_lines
from milabench_ng.run.display.live_table import ASCII, UNICODE, lines
from milabench_ng.run.display.run_view import RunView, seen
from milabench_ng.run.display.wording import SHOWN, said
from milabench_ng.run.events.run_events import (
    BatchBegins,
    BatchProgress,
    LaunchState,
    RunBegins,
    RunEvent,
    Slices,
    Stamped,
)

REDRAWN_S = 1.0
"""The least time between two displays of progress. Each takes processor time next to the tenants."""


class Terminal:
    """Shows a run on a terminal."""

    name = "the live display"
    wants: tuple[type[RunEvent], ...] = (*SHOWN, RunBegins, LaunchState, Slices)

    def __init__(self, console: Console, view: RunView = RunView()) -> None:  # noqa: B008  # frozen
        """``view``: what is known of the run already."""
        self._console = console
        self._glyphs = UNICODE if console.encoding.startswith("utf") else ASCII
        self._live: Live | None = None
        self._view = view
        self._stage = ""
        """What goes on besides a batch at work."""
        self._drawn_s = -math.inf

    def receive(self, stamped: Stamped) -> None:
        """Print a note or line above, or change the display."""
        event = stamped.event
        self._view = seen(self._view, event, stamped.time_s)
        told = said(event, self._view.batch)
        if told is None:
            return
        if told.kind in ("note", "line"):
            style = "yellow" if told.kind == "note" else None
            self._console.print(plain_lines(told.text), style=style, markup=False, highlight=False)
            return
        self._stage = "" if isinstance(event, BatchBegins | BatchProgress) else plain(told.text)
        if told.kind == "stage" or stamped.time_s - self._drawn_s >= REDRAWN_S:
            self._draw(stamped.time_s)

    def close(self) -> None:
        """Remove the display, and give the cursor back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, now_s: float) -> None:
        self._drawn_s = now_s
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        width, height = self._console.size
        stage = [self._stage[:width]] if self._stage else []
        shown = [*lines(self._view, now_s, width, height - len(stage), self._glyphs), *stage]
        self._live.update(Text("\n".join(shown), no_wrap=True, overflow="crop"), refresh=True)

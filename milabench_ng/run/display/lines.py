"""Output to a file or pipe: lines only, with progress now and then."""

from __future__ import annotations

import math

from rich.console import Console

from milabench_ng.model.plain import plain, plain_lines
from milabench_ng.run.display.wording import SHOWN, said
from milabench_ng.run.events.run_events import BatchBegins, RunEvent, Stamped

INTERVAL_S = 10.0
"""Progress is written after this long without other output."""


class PlainLines:
    """Writes a run line by line."""

    name = "the display"
    wants: tuple[type[RunEvent], ...] = SHOWN

    def __init__(self, console: Console, batch: BatchBegins | None = None) -> None:
        """``batch``: the one that goes on already."""
        self._console = console
        self._batch = batch
        self._last_s = -math.inf

    def receive(self, stamped: Stamped) -> None:
        """Write one line, or none."""
        event = stamped.event
        if isinstance(event, BatchBegins):
            self._batch = event
        told = said(event, self._batch)
        if told is None or (told.kind == "progress" and stamped.time_s - self._last_s < INTERVAL_S):
            return
        text = plain_lines(told.text) if told.kind in ("note", "line") else plain(told.text)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        if told.kind != "note":
            self._last_s = stamped.time_s

    def close(self) -> None:
        """Do nothing: every line was written at once."""

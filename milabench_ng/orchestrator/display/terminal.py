"""Output to a terminal: lines that stay, and below them one that changes."""

from __future__ import annotations

from rich.console import Console
from rich.status import Status

from milabench_ng.orchestrator.display.wording import SHOWN, said
from milabench_ng.orchestrator.events.run_events import BatchBegins, RunEvent, Stamped
from milabench_ng.plain import plain, plain_lines

REFRESHES_PER_S = 2.0
"""Of the live line. Each costs about a millisecond of CPU time next to the tenants; rich's own pace is 12.5."""


class Terminal:
    """Shows a run on a terminal."""

    name = "the live display"
    wants: tuple[type[RunEvent], ...] = SHOWN

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._batch: BatchBegins | None = None

    def receive(self, stamped: Stamped) -> None:
        """Print a note or line above, or update the live line."""
        event = stamped.event
        if isinstance(event, BatchBegins):
            self._batch = event
        told = said(event, self._batch)
        if told is None:
            return
        if told.kind in ("note", "line"):
            style = "yellow" if told.kind == "note" else None
            self._console.print(plain_lines(told.text), style=style, markup=False, highlight=False, soft_wrap=True)
        else:
            self._change(plain(told.text))

    def close(self) -> None:
        """Remove the live line."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _change(self, text: str) -> None:
        if self._status is None:
            self._status = self._console.status(text, refresh_per_second=REFRESHES_PER_S)
            self._status.start()
        self._status.update(text.replace("[", "\\["))

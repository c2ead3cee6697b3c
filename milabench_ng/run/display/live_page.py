"""A run as a page that reloads itself, for browsers on other machines. Any web server can serve the file."""

from __future__ import annotations

import math
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from milabench_ng.model.plain import plain
from milabench_ng.records.output_files import write_output
from milabench_ng.run.display.live_table import TEXTS, UNICODE, cells, left
from milabench_ng.run.display.run_view import RunView, seen
from milabench_ng.run.display.wording import SHOWN, heading, said
from milabench_ng.run.events.run_events import (
    LaunchState,
    RunBegins,
    RunEnds,
    RunEvent,
    Slices,
    Stamped,
)

WRITTEN_S = 2.0
"""The least time between two writings, and how often browsers reload the page."""
REMEMBERED = 20
"""Lines on the page: results of launches, and notes."""


class LivePage:
    """Keeps a page up to date."""

    name = "the live page"
    wants: tuple[type[RunEvent], ...] = (*SHOWN, RunBegins, LaunchState, Slices, RunEnds)

    def __init__(self, path: Path, view: RunView) -> None:
        """``view``: what is known of the run already. Raises InputError if the page cannot be written."""
        self._path = path
        self._view = view
        self._told: tuple[str, ...] = ()
        self._ended = False
        self._written_s = -math.inf
        environment = Environment(
            loader=PackageLoader("milabench_ng.run.display", "."),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        )
        self._template = environment.get_template("live_page.html.j2")
        self._write("", 0.0)

    def receive(self, stamped: Stamped) -> None:
        """Add an event, and write the page if it is old."""
        event = stamped.event
        self._view = seen(self._view, event, stamped.time_s)
        self._ended = isinstance(event, RunEnds)
        told = said(event, self._view.batch)
        if told is not None and told.kind in ("note", "line"):
            self._told = (plain(told.text), *self._told)[:REMEMBERED]
        if self._ended or stamped.time_s - self._written_s >= WRITTEN_S:
            self._write(stamped.utc, stamped.time_s)

    def close(self) -> None:
        """Do nothing: the end of a session was written at once."""

    def _write(self, utc: str, now_s: float) -> None:
        self._written_s = now_s
        view = self._view
        page = self._template.render(
            view=view,
            heading="" if view.batch is None else plain(heading(view.batch)),
            left="" if view.batch is None else left(view.batch, now_s - view.batch_s),
            columns=cells(view.tenants, UNICODE),
            texts=TEXTS,
            told=self._told,
            ended=self._ended,
            utc=utc,
            reload_s=WRITTEN_S,
        )
        write_output(self._path, page.encode(), "--html", force=True)

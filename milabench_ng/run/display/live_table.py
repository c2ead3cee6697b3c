"""The live display as lines of text: a row for each tenant, a bar for the batch and one for the run. Pure.

Written out instead of laid out by rich: a table of eight tenants costs a tenth of rich's processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from milabench_ng.model.plain import plain
from milabench_ng.model.units import format_seconds
from milabench_ng.run.display.run_view import RunView, TenantView
from milabench_ng.run.display.wording import heading
from milabench_ng.run.events.run_events import BatchBegins, Gauges

GAP = "  "
BAR = 20
"""Characters of a bar on a wide terminal."""
SPARK = 15
"""Characters of a minute's rates."""
UNKNOWN = "-"
ALWAYS = 4
TEXTS = frozenset({"device", "test", "phase", "unit", "last minute"})
"""Columns that are not numbers."""


class Glyphs(NamedTuple):
    """Characters that the terminal's encoding has."""

    levels: str
    """From the least to the greatest rate."""
    full: str
    empty: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "█", "░")
ASCII = Glyphs("_.-=+*%#", "#", ".")


class Column(NamedTuple):
    """A column of the table."""

    title: str
    cell: Callable[[TenantView, Glyphs], str]
    rank: int
    """The greatest is left out first where the terminal is narrow; up to `ALWAYS`, also shown if nobody tells it."""


def lines(view: RunView, now_s: float, width: int, height: int, glyphs: Glyphs) -> list[str]:
    """At most ``height`` lines of at most ``width`` characters; none before the first batch."""
    if view.batch is None:
        return []
    rows = _table(view.tenants, width, glyphs)
    room = max(1, height - 3)  # the heading, the bars, and the line that the cursor is on
    if len(rows) > room:
        rows = [*rows[: room - 1], f"... and {len(rows) - room + 1} more"]
    return [line[:width] for line in (plain(heading(view.batch)), *rows, _bars(view, now_s, width, glyphs))]


def cells(tenants: Sequence[TenantView], glyphs: Glyphs) -> dict[Column, list[str]]:
    """A cell for each tenant by column, without the columns that nobody tells."""
    tests = {tenant.placed.label for tenant in tenants}
    columns = {one: [one.cell(tenant, glyphs) for tenant in tenants] for one in COLUMNS}
    return {
        one: found
        for one, found in columns.items()
        if (one.rank <= ALWAYS or not {UNKNOWN, ""}.issuperset(found)) and (one.title != "test" or len(tests) > 1)
    }


def _table(tenants: Sequence[TenantView], width: int, glyphs: Glyphs) -> list[str]:
    """Titles and a row for each tenant, without what finds no room."""
    columns = cells(tenants, glyphs)
    kept = list(columns)
    while len(kept) > 1 and sum(_width(one, columns[one]) + len(GAP) for one in kept) - len(GAP) > width:
        kept.remove(max(kept, key=lambda one: one.rank))
    return [GAP.join(row).rstrip() for row in zip(*(_laid_out(one, columns[one]) for one in kept), strict=True)]


def _width(column: Column, cells: Sequence[str]) -> int:
    return max(map(len, (column.title, *cells)))


def _laid_out(column: Column, cells: Sequence[str]) -> list[str]:
    side = str.ljust if column.title in TEXTS else str.rjust
    return [side(cell, _width(column, cells)) for cell in (column.title, *cells)]


def _bars(view: RunView, now_s: float, width: int, glyphs: Glyphs) -> str:
    batch, begins = view.batch, view.begins
    assert batch is not None
    length = min(BAR, width // 5)
    parts = [f"run {_bar(batch.number / batch.of, length, glyphs)} {batch.number}/{batch.of}"]
    if view.working_s is not None and begins is not None and begins.window_s:
        share = view.working_s / (begins.settle_s + begins.window_s)
        parts.insert(0, f"batch {_bar(share, length, glyphs)}")
    parts.append(left(batch, now_s - view.batch_s))
    parts += [f"{len(view.failed)} failed"] if view.failed else []
    parts += [f"{len(view.marked)} with warnings"] if view.marked else []
    return GAP.join(parts)


def left(batch: BatchBegins, elapsed_s: float) -> str:
    """The time that is left; a batch that takes longer than expected takes nothing from those that follow."""
    takes_s = batch.takes_s or elapsed_s
    left_s = batch.left_s - min(elapsed_s, takes_s)
    if left_s < 1:
        return "ending"
    over = "over " if elapsed_s > takes_s else ""
    return f"{over}{format_seconds(round(left_s))} left"


def _bar(share: float, length: int, glyphs: Glyphs) -> str:
    done = round(length * min(1.0, max(0.0, share)))
    return glyphs.full * done + glyphs.empty * (length - done)


def spark(rates: Sequence[float], glyphs: Glyphs) -> str:
    """The course of rates, between none and the greatest, in at most `SPARK` characters."""
    top = max(rates, default=0.0)
    if top <= 0:
        return ""
    count = min(SPARK, len(rates))
    ends = [round(len(rates) * place / count) for place in range(count + 1)]
    means = [sum(rates[a:b]) / (b - a) for a, b in pairwise(ends)]
    last = len(glyphs.levels) - 1
    return "".join(glyphs.levels[round(last * mean / top)] for mean in means)


def _device(tenant: TenantView, _: Glyphs) -> str:
    names = tenant.placed.devices or tenant.placed.slots
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1].rpartition(' ')[2]}"


def _rate(tenant: TenantView, _: Glyphs) -> str:
    return UNKNOWN if tenant.rate is None else f"{tenant.rate:,.1f}"


def _wait(tenant: TenantView, _: Glyphs) -> str:
    return UNKNOWN if tenant.wait_pct is None else f"{tenant.wait_pct:.0f}"


def _gauge(read: Callable[[Gauges], float | None], together: Callable[[list[float]], float]) -> Callable[..., str]:
    def cell(tenant: TenantView, _: Glyphs) -> str:
        found = [value for value in map(read, tenant.gauges) if value is not None]
        return f"{together(found):,.0f}" if found else UNKNOWN

    return cell


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


COLUMNS = (
    Column("device", _device, 0),
    Column("test", lambda tenant, _: plain(tenant.placed.label), 3),
    Column("phase", lambda tenant, _: tenant.phase, 1),
    Column("rate", _rate, 2),
    Column("unit", lambda tenant, _: plain(f"{tenant.placed.unit}/s"), ALWAYS),
    Column("last minute", lambda tenant, glyphs: spark(tenant.rates, glyphs), 7),
    Column("wait %", _wait, 5),
    Column("GPU %", _gauge(lambda one: one.utilization_pct, _mean), 6),
    Column("W", _gauge(lambda one: one.power_w, sum), 8),
    Column("C", _gauge(lambda one: one.temperature_c, max), 9),
    Column("MiB", _gauge(lambda one: one.memory_used_mib, max), 10),
)

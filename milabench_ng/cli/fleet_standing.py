"""How it stands with a fleet: printed once, or shown until nobody works on it any more."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.following import follow
from milabench_ng.fleet.ledger import Key, Standing
from milabench_ng.fleet.retesting import missing_nodes
from milabench_ng.present.render.fleet_live import changes, live_lines
from milabench_ng.present.render.fleet_tables import standing_document
from milabench_ng.present.render.sections import Form
from milabench_ng.present.writers import write


def print_standing(found: FleetFolder, form: Form = "table", *, whole: bool = True) -> int:
    """Print how it stands with a fleet; the exit code. ``whole``: with all nodes."""
    write(standing_document(found, whole=whole), form, sys.stdout)
    return int(bool(missing_nodes(found)) or any(one.failed for one in found.standings.values()))


def watch_fleet(folder: Path) -> int:
    """Show a fleet until nobody works on it any more, then how it stands; the exit code."""
    console = Console()
    return print_standing(_on_terminal(console, folder) if console.is_terminal else _as_lines(console, folder))


def _on_terminal(console: Console, folder: Path) -> FleetFolder:
    """Drawn only when something changed."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for found in follow(folder):
            text = "\n".join(live_lines(found, *console.size))
            live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
    return found


def _as_lines(console: Console, folder: Path) -> FleetFolder:
    known: Mapping[Key, Standing] = {}
    for found in follow(folder):
        for line in changes(known, found.standings) if found.going_on else ():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        known = found.standings
    return found

"""`mnb watch` on a fleet: each change once, and the end when nobody works on it any more."""

from __future__ import annotations

import fcntl
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyte
import pytest
from rich.console import Console

from milabench_ng.cli import call, fleet_standing
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.following import follow
from milabench_ng.fleet.ledger import FLEET_LEDGER, AnyFleetEvent, Collected, NodeEnded, NodeLost, NodeStarted
from milabench_ng.present.render.fleet_live import changes, live_lines
from tests.fleet.made_folders import made_ledger
from tests.fleet.test_fleet_folder import with_results, write_fleet

STARTED = NodeStarted(node="gpu2", session="screen"), NodeStarted(node="gpu10", session="screen")
LOST = NodeLost(node="gpu10", session="screen", reason="no answer for 60 s")
DONE = (
    NodeEnded(node="gpu2", session="screen", status=0),
    Collected(node="gpu2", session="screen", sha256="1", ledger_sha256="2", summary_sha256="3"),
)


def collected(path: Path, *events: AnyFleetEvent) -> Path:
    """A fleet with these events, and the results of gpu2."""
    folder = write_fleet(path, *events)
    with_results(folder)
    return folder


@contextmanager
def at_work(folder: Path) -> Iterator[int]:
    """Somebody works on this fleet, until the lock is given back."""
    held = os.open(folder / FLEET_LEDGER, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield held
    finally:
        os.close(held)


def played(folder: Path, held: int, *steps: tuple[AnyFleetEvent, ...]) -> Iterator[FleetFolder]:
    """What is seen while this is written into the ledger, a step a second, and the lock is given back at last."""
    left = list(steps)

    def wait(_: float) -> None:
        if left:
            (folder / FLEET_LEDGER).write_bytes(made_ledger(*left.pop(0)))
        else:
            fcntl.flock(held, fcntl.LOCK_UN)

    return follow(folder, wait)


def test_each_change_is_seen_once_and_the_end(tmp_path: Path) -> None:
    folder = collected(tmp_path / "fleet", *STARTED)
    with at_work(folder) as held:
        found = list(played(folder, held, STARTED, (*STARTED, LOST), (*STARTED, LOST, *DONE)))
    assert [one.going_on for one in found] == [True, True, True, False]
    told = [list(changes(before.standings, after.standings)) for before, after in pairwise(found)]
    assert told == [
        ["gpu10 screen: lost since 16:00:00 UTC: no answer for 60 s"],
        ["gpu2 screen: collected since 16:00:00 UTC"],
        [],
    ]


def test_what_needs_attention_stands_first_and_nothing_is_wider_or_higher_than_the_terminal(tmp_path: Path) -> None:
    found = FleetFolder.read(collected(tmp_path / "fleet", *STARTED, LOST, *DONE))
    assert live_lines(found, 80, 24) == [
        "2 nodes: 1 of 2 sessions done, 1 lost",
        "gpu10  screen  lost since 16:00:00 UTC: no answer for 60 s",
        "gpu2   screen  collected since 16:00:00 UTC",
    ]
    assert live_lines(found, 30, 2) == ["2 nodes: 1 of 2 sessions done,", "and 2 more: mnb fleet status"]


def test_a_terminal_ends_with_how_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = collected(tmp_path / "fleet", *STARTED)
    with at_work(folder) as held:
        monkeypatch.setattr(
            fleet_standing, "follow", lambda _: played(folder, held, (*STARTED, LOST), (*STARTED, LOST, *DONE))
        )
        written = io.StringIO()
        console = Console(file=written, force_terminal=True, width=80, height=10, legacy_windows=False)
        found = fleet_standing._on_terminal(console, folder)
    assert not found.going_on
    screen = pyte.Screen(80, 10)
    drawn = written.getvalue()
    pyte.Stream(screen).feed(drawn[: drawn.rindex("gpu2   screen  collected") + 24].replace("\n", "\r\n"))
    assert [line.rstrip() for line in screen.display[:3]] == [
        "2 nodes: 1 of 2 sessions done, 1 lost",
        "gpu10  screen  lost since 16:00:00 UTC: no answer for 60 s",
        "gpu2   screen  collected",
    ]


def test_a_fleet_that_nobody_works_on_is_shown_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(collected(tmp_path / "fleet", *STARTED, LOST, *DONE))
    assert call(["watch", folder]) == 1
    watched = capsys.readouterr().out
    assert call(["fleet", "status", folder]) == 1
    assert watched == capsys.readouterr().out
    assert call(["watch", folder, "--speed", "4", "--html", "x.html"]) == 2
    assert "--speed --html: only for the run of one node, but" in capsys.readouterr().err

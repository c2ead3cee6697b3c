"""Nodes that are killed at random moments cost no record: what they had is pulled, and a resume does the rest."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.records.ledger import check_chain
from tests.fleet.made_folders import records_of
from tests.fleet.stand_in import kill_soon, make_stand_in


@pytest.mark.slow
def test_nodes_that_are_killed_at_random_cost_no_record(tmp_path: Path) -> None:
    stand_in = make_stand_in(tmp_path / "mnb")
    victims = random.sample([f"local-{number}" for number in range(1, 21)], 4)
    for node in victims:
        stand_in.hang(node)
    killers = [threading.Thread(target=kill_soon, args=(tmp_path, node)) for node in victims]
    for killer in killers:
        killer.start()
    words = ("--mnb", stand_in.command, "--node-folder", str(tmp_path / "there"), "-o", str(tmp_path / "fleet"))
    profile = str(stand_in.folder / "tiny.json")
    assert call(("fleet", "run", profile, "--launcher", "local", "--nodes", "20", "--retests", "0", *words)) == 1
    for killer in killers:
        killer.join()
    found = FleetFolder.read(tmp_path / "fleet")
    assert sorted(node for (node, _), one in found.standings.items() if one.state == "lost") == sorted(victims)
    assert len(found.sessions) == 20, "what the killed nodes had is here"
    for node in victims:
        stand_in.hang(node, False)
    assert call(("fleet", "resume", str(tmp_path / "fleet"))) in (0, 3)
    found = FleetFolder.read(tmp_path / "fleet")
    assert [len(records_of(one).records) for one in found.sessions] == [2] * 20
    assert (found.ledger.problems, found.strangers) == ((), ())
    for one in found.sessions:
        assert check_chain(one.read_ledger()).problems == ()

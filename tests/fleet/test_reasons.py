"""What is told of a node whose session has no results: its own reason, and nothing that is not so."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers.interface import Ended, Heard
from milabench_ng.fleet.launchers.local import Local
from milabench_ng.fleet.running import run
from tests.fleet.stand_in import StandIn, make_stand_in
from tests.fleet.test_local_fleet import manifest

pytestmark = pytest.mark.slow
BANNER = "echo '" + "This system is monitored. " * 20 + "' >&2\n"


class Greeted(Local):
    """Local nodes whose shells print a banner, and more."""

    before = BANNER

    def run(self, nodes: Collection[str], script: str, heard: Heard) -> AbstractContextManager[Iterator[Ended]]:
        return super().run(nodes, self.before + script, heard)


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return make_stand_in(tmp_path / "mnb")


def fleet(stand_in: StandIn, there: Path, launcher: Local, told: list[str]) -> FleetFolder:
    asked = manifest(launcher, there, (stand_in.command,))
    return run(stand_in.folder.parent / "fleet", asked, launcher, told.append)


def test_the_reason_of_a_node_without_a_place_is_told_after_a_banner(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file, and no folder")
    told: list[str] = []
    standing = fleet(stand_in, tmp_path / "there", Greeted(("a",)), told).standings["a", "screen"]
    assert standing.state == "lost"
    assert standing.reason.startswith("mnb jobs did not begin: ...")
    assert "Not a directory" in standing.reason

"""What is told of a node whose session has no results: its own reason, and nothing that is not so."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers.interface import Ended, Heard
from milabench_ng.fleet.launchers.local import Local
from milabench_ng.fleet.running import run
from milabench_ng.model.plain import short_end
from milabench_ng.records.names import LEDGER
from tests.fleet.stand_in import StandIn, make_stand_in, summarise
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
    assert told[-1] == "a: not collected: it has no results yet"


def test_a_signal_leaves_no_node_of_this_machine_at_work(stand_in: StandIn, tmp_path: Path) -> None:
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if "at work" in text:
            raise SystemExit(128 + signal.SIGINT)

    launcher = Local(("a",))
    with pytest.raises(SystemExit):
        run(tmp_path / "fleet", manifest(launcher, tmp_path / "there", (stand_in.command,)), launcher, tell)
    assert told[-1] == f"ended by a signal. To go on: mnb fleet resume {tmp_path / 'fleet'}"


def test_a_refusal_of_several_lines_is_told_whole(stand_in: StandIn, tmp_path: Path) -> None:
    script = Path(stand_in.command).read_text()
    earlier = "echo mnb: of an earlier try; echo importing torch ..."
    refusal = f"{earlier}; echo mnb jobs: it would break rules:; echo '  R6 profile'; echo nothing was run; exit 2"
    Path(stand_in.command).write_text(script.replace("case $1", f"if test $1 = jobs; then {refusal}; fi\ncase $1", 1))
    standing = fleet(stand_in, tmp_path / "there", Local(("a",)), []).standings["a", "screen"]
    assert (
        standing.reason == "mnb jobs ended with status 2: mnb jobs: it would break rules:; R6 profile; nothing was run"
    )


def test_a_run_that_could_not_save_its_results_is_lost_and_says_where_they_are(
    stand_in: StandIn, tmp_path: Path
) -> None:
    """All launches succeeded, the disk was full, and `mnb jobs` ended with 1: that is no failed launch."""
    results = stand_in.leaves("a", "screen")
    shutil.copytree(stand_in.folder / "results", results)
    lines = (results / LEDGER).read_bytes().splitlines(keepends=True)
    (results / LEDGER).write_bytes(b"".join(lines[:-1]))
    summarise(results)
    script = Path(stand_in.command)
    left = 'cp -r "$of_node/." "$last"'
    unsaved = f"{left}; test ! -e $of_node/run.json -o $of_node = {stand_in.folder}/results ||"
    unsaved += " { echo 'mnb: unsaved files are in /tmp/spool'; exit 1; }"
    script.write_text(script.read_text().replace(left, unsaved))
    told: list[str] = []
    found = fleet(stand_in, tmp_path / "there", Local(("a", "b")), told)
    standing = found.standings["a", "screen"]
    reason = "mnb jobs ended with status 1, and its ledger lacks launches: mnb: unsaved files are in /tmp/spool"
    assert (standing.state, standing.reason, standing.collected) == ("lost", reason, True)
    assert found.standings["b", "screen"].here
    assert not any("failed launches" in one for one in told)


class OfLittleMemory(Greeted):
    """Nodes on which not all can be packed."""

    before = """\
tar() {
    case $* in */dev/null*) return;; esac
    head -c 9; echo 'tar: Cannot allocate memory' >&2; return 2
}
"""


def test_a_node_that_cannot_pack_its_results_says_why(stand_in: StandIn, tmp_path: Path) -> None:
    told: list[str] = []
    standing = fleet(stand_in, tmp_path / "there", OfLittleMemory(("a",)), told).standings["a", "screen"]
    assert (standing.state, standing.collected) == ("ended", False)
    assert standing.reason == "its packed folder did not come whole (the node: tar: Cannot allocate memory)"
    assert told[-1] == f"a: not collected: {standing.reason}"


class CutOff(Local):
    """Nodes whose connection breaks when all is done, before anything is sent."""

    def run(self, nodes: Collection[str], script: str, heard: Heard) -> AbstractContextManager[Iterator[Ended]]:
        return super().run(nodes, script.replace('test "$status" -le 1 ||', "kill -9 $$;"), heard)


def test_what_is_whole_although_the_connection_broke_is_told(stand_in: StandIn, tmp_path: Path) -> None:
    told: list[str] = []
    standing = fleet(stand_in, tmp_path / "there", CutOff(("a",)), told).standings["a", "screen"]
    assert standing.here
    assert told[-2].startswith("a: lost (1 of 1): ")
    assert told[-1] == "a: collected after all"


def test_what_a_node_said_is_told_in_one_line() -> None:
    assert short_end("mkdir: no\n\n  sh: no\n") == "mkdir: no; sh: no"

"""What a fleet does after its first session: suspicious nodes run again, and what was interrupted is made up for."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from milabench_ng.cli import call
from milabench_ng.fleet.folder import FleetFolder, NodeSession
from milabench_ng.fleet.ledger import Clock, CommonStart, Retested
from milabench_ng.fleet.manifest import FleetManifest, encode_fleet_manifest
from milabench_ng.fleet.preflight import clock_difference, in_words, loose_clocks
from milabench_ng.fleet.retesting import nodes_left
from milabench_ng.records.names import FLEET_MANIFEST
from tests.fleet.made_folders import profile_of, write_fleet, write_session
from tests.fleet.stand_in import StandIn, kill_soon, make_stand_in, summarise

SLOW = "local-3"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """Eight nodes, of which one is slow in all tests, always."""
    made = make_stand_in(tmp_path_factory.mktemp("stand-in") / "mnb")
    for number in range(1, 9):
        node = f"local-{number}"
        for session in ("screen", "retest-1", "retest-2"):
            factor = 0.85 if node == SLOW else 1.0
            write_session(made.leaves(node, session), node, session, lambda *_, factor=factor: factor)
            summarise(made.leaves(node, session))
    (made.folder / "standard.json").write_text(profile_of(made.leaves(SLOW, "screen")).text)
    return made


def fleet(stand_in: StandIn, folder: Path, *words: str) -> int:
    profile = str(stand_in.folder / "standard.json")
    common = ("--mnb", stand_in.command, "--node-folder", str(folder / "there"), "-o", str(folder / "fleet"))
    return call(("fleet", "run", profile, "--launcher", "local", *common, *words))


def test_a_slow_node_and_some_others_run_again_in_sessions_of_their_own(
    stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fleet(stand_in, tmp_path, "--nodes", "8", "--retests", "2") == 1, "and it ends with the verdict"
    found = FleetFolder.read(tmp_path / "fleet")
    picked = [event for event in found.ledger.events if isinstance(event, Retested)]
    assert [event.session for event in picked] == ["retest-1", "retest-2"]
    reasons = dict(picked[0].nodes)
    assert reasons.pop(SLOW).startswith("may be slow in all ")
    assert set(reasons.values()) == {"control"}
    assert len(reasons) == 3
    for node in picked[0].nodes:
        assert [one.session for one in found.sessions if one.node == node] == ["screen", "retest-1", "retest-2"]
    assert {one.node for one in found.sessions if one.session != "screen"} == set(picked[0].nodes)
    said, progress = capsys.readouterr()
    assert re.search(rf"retest-1: {SLOW}: may be slow in all", progress)
    assert call(("report", str(tmp_path / "fleet"))) == 1
    assert capsys.readouterr().out in said
    drains = [line.partition("scontrol")[2] for line in said.splitlines() if "scontrol" in line]
    assert [shlex.split(line)[:3] for line in drains] == [["update", f"nodename={SLOW}", "state=drain"]]

    fleet_ledger = tmp_path / "fleet" / "fleet.jsonl"
    lines = fleet_ledger.read_bytes().splitlines(keepends=True)
    cut = next(place for place, line in enumerate(lines) if b'"session":"retest-2"' in line)
    fleet_ledger.write_bytes(b"".join(lines[: cut + 1]))  # as if it had been killed before the second retest
    assert call(("fleet", "resume", str(tmp_path / "fleet"))) == 1
    again = FleetFolder.read(tmp_path / "fleet")
    assert again.standings[SLOW, "retest-2"].collected
    called = next(tmp_path.glob(f"there/*/{SLOW}/called")).read_text().split()
    assert called == ["jobs", "jobs", "jobs", "resume"], "the first two are not done again"


def test_the_head_reads_no_records_of_nodes_that_sent_their_summaries(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to pick nodes for retests, nor for the verdict."""

    def read(session: NodeSession) -> tuple[bytes | None, str]:
        raise AssertionError(session.name)

    monkeypatch.setattr("milabench_ng.fleet.summaries.encoded", read)
    assert fleet(stand_in, tmp_path, "--nodes", "8", "--retests", "1") == 1
    found = FleetFolder.read(tmp_path / "fleet")
    assert {one.session for one in found.sessions} == {"screen", "retest-1"}


def test_without_suspicion_nothing_runs_again(stand_in: StandIn, tmp_path: Path) -> None:
    assert fleet(stand_in, tmp_path, "--nodes", "2") == 3, "of two nodes, nobody can say which is slow"
    found = FleetFolder.read(tmp_path / "fleet")
    assert {one.session for one in found.sessions} == {"screen"}


def test_all_nodes_begin_at_one_moment(stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet(stand_in, tmp_path, "--nodes", "4", "--retests", "0", "--common-start", "3s") == 3
    (common,) = (e for e in FleetFolder.read(tmp_path / "fleet").ledger.events if isinstance(e, CommonStart))
    moments = [float(path.read_text()) for path in tmp_path.glob("there/*/*/at")]
    assert len(moments) == 4
    assert min(moments) >= datetime.fromisoformat(common.at_utc).timestamp() - 0.001, "nobody begins before it"
    assert "all nodes begin at" in capsys.readouterr().err
    assert common.session == "screen"


def test_clocks_that_may_be_off_are_named() -> None:
    good = Clock(node="a", synchronized=True, offset_s=-0.001, error_s=0.1)
    off = Clock(node="b", synchronized=True, offset_s=-0.3, error_s=0.9)
    wild = Clock(node="c", synchronized=False, offset_s=0.0, error_s=16.0)
    late = Clock(node="d", synchronized=True, offset_s=0.0, error_s=0.0, ahead_s=-300.2)
    assert loose_clocks("abcde", (good, off, wild, late)) == (
        "b: its clock may be off by 1.2 s",
        "c: no NTP client sets its clock",
        "d: by the clock here, its own is 300 s behind",
        "e: it does not report its clock",
    )
    (found,) = clock_difference((good, late))
    assert in_words(found) == "clock: as here on 1 node, 300 s behind on d"
    assert list(clock_difference((good, off))) == []


def test_a_burn_in_repeats_until_its_time_is_over(
    stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = "--window 1 --tenants 1 --allow-concurrent"  # the last of which local nodes are given anyway
    assert fleet(stand_in, tmp_path, "--nodes", "1", "--for", "1h", "--jobs", jobs) == 3
    manifest = FleetFolder.read(tmp_path / "fleet").manifest
    of_burn_in = ("--repeat", "181", "--budget", "1h")
    assert manifest.arguments == ("--window", "1", "--tenants", "1", "--allow-concurrent", *of_burn_in)
    assert manifest.burn_in_s == 3600
    said = capsys.readouterr().out
    assert re.search(r"burn-in +0 failures in \d\.\d\d node-hours: 0 per node-hour \(95% CI 0 to ", said)
    for words, why in (
        (("--for", "1h", "--jobs", "--repeat 3"), "Leave --repeat out of --jobs"),
        (("--for", "soon"), "--for: expected a duration"),
        (("--retests", "99"), "--retests: expected 0 to 20"),
    ):
        assert fleet(stand_in, tmp_path / "other", "--nodes", "1", *words) == 2
        assert why in capsys.readouterr().err


def test_a_node_screened_in_a_resume_is_retested_too(stand_in: StandIn, tmp_path: Path) -> None:
    """The slow node hangs at first, while another is picked; the picks of the resume have controls of their own."""
    other = "local-6"
    write_session(stand_in.leaves(other, "screen-slow"), other, "screen", lambda *_: 0.85)
    mend = swapped(stand_in, other)
    stand_in.hang(SLOW)
    killer = threading.Thread(target=kill_soon, args=(tmp_path, SLOW))
    killer.start()
    assert fleet(stand_in, tmp_path, "--nodes", "8", "--retests", "1") == 1
    killer.join()
    first = FleetFolder.read(tmp_path / "fleet")
    (before,) = (event.nodes for event in first.ledger.events if isinstance(event, Retested))
    assert (other in before, SLOW in before) == (True, False)
    stand_in.hang(SLOW, False)
    assert call(("fleet", "resume", str(tmp_path / "fleet"))) == 1
    found = FleetFolder.read(tmp_path / "fleet")
    _, late = (event.nodes for event in found.ledger.events if isinstance(event, Retested))
    assert late[SLOW].startswith("may be slow in all")
    assert not set(late) & set(before)
    assert set(late.values()) == {late[SLOW], "control"}
    assert found.standings[SLOW, "retest-1"].here
    assert nodes_left(found) == ()
    mend()


def swapped(stand_in: StandIn, node: str) -> Callable[[], None]:
    """Have a node leave slow results; what is returned takes that back."""
    healthy, slow = stand_in.leaves(node, "screen"), stand_in.leaves(node, "screen-slow")
    aside = healthy.with_name("healthy")
    healthy.rename(aside)
    slow.rename(healthy)
    summarise(healthy)

    def back() -> None:
        healthy.rename(slow)
        aside.rename(healthy)
        summarise(healthy)

    return back


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that would be handed to Slurm."""
    scripts: list[str] = []
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.setattr("milabench_ng.cli.fleet.submit", lambda script: scripts.append(script) or 0)
    return scripts


@pytest.mark.parametrize("screens", [[], ["gpu6"]])
def test_a_resume_under_slurm_asks_for_the_nodes_of_open_retests_too(
    tmp_path: Path, submitted: list[str], screens: list[str]
) -> None:
    """``screens``: the nodes whose first session is missing, too."""
    nodes = [f"gpu{number}" for number in range(1, 7)]
    picked = Retested(session="retest-1", nodes={"gpu2": "may be slow", "gpu5": "control"})
    folder = write_fleet(tmp_path / "fleet", nodes, more=[picked], without=screens)
    of_slurm(folder)
    assert call(("fleet", "resume", str(folder))) == 0
    assert f"#SBATCH --nodelist={','.join(['gpu2', 'gpu5', *screens])}\n" in submitted[0]
    assert f"#SBATCH --nodes={2 + len(screens)}\n" in submitted[0]


def test_a_whole_fleet_of_slurm_is_resumed_anywhere(
    tmp_path: Path, submitted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", ["gpu1", "gpu2"])
    of_slurm(folder)
    assert call(("fleet", "resume", str(folder))) == 3
    assert "nothing to run" in capsys.readouterr().err
    assert submitted == []


def of_slurm(folder: Path) -> None:
    """Make the fleet one that Slurm started, with one retest."""
    file = folder / FLEET_MANIFEST
    made = msgspec.json.decode(file.read_bytes(), type=FleetManifest)
    file.write_bytes(encode_fleet_manifest(msgspec.structs.replace(made, launcher="slurm", retests=1)))

"""Real fleets of processes of this machine: nodes that work, one that is killed in the middle, one never reached."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from milabench_ng import __version__
from milabench_ng.cli import call
from milabench_ng.fleet.folder import FleetFolder, session_file
from milabench_ng.fleet.launchers.interface import Asked, Ended, Heard
from milabench_ng.fleet.launchers.local import Local, make
from milabench_ng.fleet.ledger import FleetFinished, FleetSession, NodeStarted
from milabench_ng.fleet.manifest import FleetManifest
from milabench_ng.fleet.retesting import nodes_left
from milabench_ng.fleet.running import resume, run
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_text
from milabench_ng.records.ledger import Attempt, Session, check_chain
from milabench_ng.records.names import LEDGER
from tests.fleet.made_folders import made_manifest, records_of
from tests.fleet.stand_in import make_stand_in

pytestmark = pytest.mark.slow
MNB = (sys.executable, "-m", "milabench_ng")
TINY = '{"*": {"data_scale": 0.002}, "steady": {"workload": "toy_reg"}}'
BRIEFLY = ("--tenants", "1", "--isolation", "none", "--window", "1", "--repeat", "2", "--allow-concurrent")


class WithoutRoute(Local):
    """Local nodes, of which one dies before it does anything."""

    def run(self, nodes: Collection[str], script: str, heard: Heard) -> AbstractContextManager[Iterator[Ended]]:
        there = f"test {{node}} != {self.nodes[-1]} || kill -9 $$\n"
        return super().run(nodes, there + script, heard)


def manifest(launcher: Local, folder: Path, mnb: tuple[str, ...] = MNB) -> FleetManifest:
    return made_manifest(launcher.nodes, "tiny", TINY, arguments=BRIEFLY, mnb=mnb, node_folder=str(folder))


def kill_in_the_middle(node: Path) -> None:
    """Kill all processes of a node when it has begun its second launch."""
    ledger = node / "screen" / LEDGER
    until = time.monotonic() + 200
    while time.monotonic() < until:
        events = check_chain(ledger.read_bytes()).events if ledger.exists() else ()
        if sum(isinstance(event, Attempt) for event in events) == 2:
            pid = next(event.pid for event in events if isinstance(event, Session))
            os.killpg(os.getpgid(pid), signal.SIGKILL)
            return
        time.sleep(0.02)


def test_a_fleet_of_which_one_node_dies_and_one_is_never_reached(tmp_path: Path) -> None:
    folder, there = tmp_path / "fleet", tmp_path / "there"
    launcher = WithoutRoute(("whole", "killed", "away"))
    killer = threading.Thread(target=kill_in_the_middle, args=(there / "killed",))
    killer.start()
    told: list[str] = []
    first = run(folder, manifest(launcher, there), launcher, told.append)
    killer.join()
    standings = first.standings
    assert [(standings[node, "screen"].state, standings[node, "screen"].collected) for node in launcher.nodes] == [
        ("ended", True),
        ("lost", True),
        ("lost", False),
    ]
    reason = "its process was killed (SIGKILL)"
    assert {standings[node, "screen"].reason for node in ("killed", "away")} == {reason}
    assert "away: lost: its process was killed (SIGKILL)" in told
    assert first.ledger.events[-1] == FleetFinished(lost=2)
    assert [len(records_of(one).records) for one in first.sessions] == [2, 1], "what the dead node had is here"
    before = session_file(folder, "whole", "screen").stat().st_mtime_ns

    second = resume(first, Local(launcher.nodes), ("mnb", "again"), told.append)
    assert [(one.state, one.collected) for one in second.standings.values()] == [("ended", True)] * 3
    assert second.ledger.problems == ()
    assert all(one.summary_sha256 for one in second.collected.values()), "every node has reduced its own records"
    assert [len(records_of(one).records) for one in second.sessions] == [2, 2, 2]
    chain = check_chain(next(one for one in second.sessions if one.node == "killed").read_ledger())
    assert (chain.problems, len(chain.sessions)) == ((), 2), "the same run goes on"
    later = second.ledger.events[len(first.ledger.events) :]
    assert isinstance(later[0], FleetSession)
    assert (later[0].number, later[0].command_line) == (2, ("mnb", "again"))
    assert [event.node for event in later if isinstance(event, NodeStarted)] == ["killed", "away"]
    assert before == session_file(folder, "whole", "screen").stat().st_mtime_ns
    assert second.strangers == ()
    assert nodes_left(second) == ()


def test_unequal_software_stops_a_fleet_before_it_starts(tmp_path: Path) -> None:
    stand_in = tmp_path / "mnb"
    stand_in.write_text(
        f"#!/bin/sh\nif mkdir {tmp_path}/first 2>/dev/null; then torch=1; else torch=2; fi\n"
        f"""printf '{{"inventory": {{"versions": {{"mnb": "{__version__}", "torch": "%s"}}}}}}' $torch\n"""
    )
    stand_in.chmod(0o755)
    launcher = Local(("a", "b"))
    with pytest.raises(InputError, match=r"software versions differ:\n  torch: \d on 1 node, \d on [ab]\n"):
        run(tmp_path / "fleet", manifest(launcher, tmp_path / "there", (str(stand_in),)), launcher, str)
    assert not (tmp_path / "fleet").exists()
    assert not (tmp_path / "there").exists()


def test_where_no_node_has_mnb_nothing_is_begun_and_the_shell_says_why(tmp_path: Path) -> None:
    launcher = make(Asked(count=2))
    with pytest.raises(InputError, match=r"no node can take part. local-\d: .*/no/such/mnb: not found"):
        run(tmp_path / "fleet", manifest(launcher, tmp_path / "there", ("/no/such/mnb",)), launcher, str)
    asked = msgspec.structs.replace(manifest(launcher, tmp_path / "there"), checkup=("--gpus=99",))
    with pytest.raises(InputError, match=r"local-\d: mnb: --gpus 99: .*Change --jobs, or the nodes"):
        run(tmp_path / "fleet", asked, launcher, str)
    away = WithoutRoute(("away",))
    with pytest.raises(InputError, match=r"away: its process was killed \(SIGKILL\). Check its name"):
        run(tmp_path / "fleet", manifest(away, tmp_path / "there"), away, str)
    assert not (tmp_path / "fleet").exists()


def test_a_node_that_says_nothing_that_can_be_read_is_lost_and_the_others_go_on(tmp_path: Path) -> None:
    stand_in = make_stand_in(tmp_path / "mnb")
    script = Path(stand_in.command).read_text()
    cases = f"""if test $1 = doctor; then
    if mkdir {tmp_path}/first 2>/dev/null; then echo '{{'; exit; fi
    if mkdir {tmp_path}/second 2>/dev/null; then sed 's/"tier":"full"/"tier":7/' "$here/doctor.json"; exit; fi
fi
case $1"""
    Path(stand_in.command).write_text(script.replace("case $1", cases, 1))
    launcher = Local(("a", "b", "c"))
    found = run(tmp_path / "fleet", manifest(launcher, tmp_path / "there", (stand_in.command,)), launcher, str)
    assert sorted(one.state for one in found.standings.values()) == ["ended", "lost", "lost"]
    reasons = " ".join(one.reason for one in found.standings.values())
    assert "what mnb doctor says there cannot be read: not JSON" in reasons
    assert "tier" in reasons


def test_a_fleet_folder_may_be_named_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "fleet").symlink_to(tmp_path / "disk")
    launcher = make(Asked(count=1))
    stand_in = make_stand_in(tmp_path / "mnb")
    found = run(tmp_path / "fleet", manifest(launcher, tmp_path / "there", (stand_in.command,)), launcher, str)
    assert found.standings["local-1", "screen"].here
    assert (tmp_path / "disk" / "fleet.jsonl").exists()


def test_what_is_no_set_of_local_nodes_is_refused() -> None:
    for asked in (Asked(), Asked(hosts="a"), Asked(count=1, engine=("-p",))):
        with pytest.raises(InputError, match="--launcher local"):
            make(asked)
    assert make(Asked(known=("a", "b"))).nodes == ("a", "b")


def test_a_node_that_says_much_and_a_slow_one_are_both_heard() -> None:
    heard: dict[str, list[bytes]] = {"a": [], "b": []}
    script = "test {node} = a && yes 'words of {node}' | head -100000; echo late >&2; printf 'no end'; exit 3"
    with Local(("a", "b")).run(("a", "b"), script, lambda node, line: heard[node].append(line)) as ended:
        found = {one.node: one for one in ended}
    assert found == {"a": Ended("a", 3, "late"), "b": Ended("b", 3, "late")}
    assert (len(heard["a"]), heard["b"]) == (100001, [b"no end"])


def test_nodes_that_are_left_early_are_asked_to_end() -> None:
    began = time.monotonic()
    with Local(("a",)).run(("a",), "sleep 100 & child=$!; trap 'kill $child' TERM; wait $child", lambda *_: None):
        time.sleep(0.3)
    assert time.monotonic() - began < 50


def test_all_nodes_are_asked_to_end_before_one_is_waited_for(tmp_path: Path) -> None:
    """Each ends only when all were asked."""
    script = (
        f"cd {tmp_path}; trap 'touch asked-$$; until [ $(ls asked-* | wc -l) = 3 ]; do sleep 0.05; done; exit' TERM; "
        "touch ready-$$; while :; do sleep 0.05; done"
    )
    with Local(("a", "b", "c")).run(("a", "b", "c"), script, lambda *_: None):
        while len(list(tmp_path.glob("ready-*"))) < 3:
            time.sleep(0.05)
    assert len(list(tmp_path.glob("asked-*"))) == 3


def test_what_a_node_says_when_it_is_left_holds_nobody_up() -> None:
    """More than a pipe takes, which nobody reads."""
    script = "trap 'yes | head -c 300000; exit 3' TERM; echo ready; sleep 100 & wait $!"
    with Local(("a",)).run(("a",), script, lambda *_: None) as ended:
        time.sleep(0.3)
        del ended


def test_a_folder_of_something_else_is_no_place_for_a_fleet(tmp_path: Path) -> None:
    (tmp_path / "run.json").touch()
    launcher = make(Asked(count=1))
    with pytest.raises(InputError, match=r"already contains 'run.json'"):
        run(tmp_path, manifest(launcher, tmp_path), launcher, str)
    with pytest.raises(InputError, match=r"fleet.json"):
        FleetFolder.read(tmp_path)
    assert read_text(tmp_path / "run.json") == ""


def test_a_quote_that_nothing_closes_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fleet", "run", "quick", "--launcher", "local", "--nodes", "2", "--jobs", "'", "-o", str(tmp_path / "f")]
    assert call(words) == 2
    assert "--jobs ': No closing quotation" in capsys.readouterr().err

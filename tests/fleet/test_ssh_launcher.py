"""Fleets through a real server of ssh on this machine: nodes that work, one that dies, one that is away."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers import registry
from milabench_ng.fleet.launchers.interface import Asked, Ended
from milabench_ng.fleet.launchers.ssh import _TRIES, Ssh, _Told, make
from milabench_ng.fleet.network.meetings import pairs_seen, read_meeting
from milabench_ng.model.errors import InputError
from tests.fleet.made_folders import records_of
from tests.fleet.ssh_server import SSHD, ssh_server
from tests.fleet.stand_in import SPREAD, StandIn, kill_soon, make_stand_in

needs_sshd = pytest.mark.skipif(SSHD is None, reason="no sshd: scripts/ensure-packages sshd openssh-server")


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[str]]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as made:
        yield made


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return make_stand_in(tmp_path / "mnb")


def test_sets_of_nodes_are_those_of_clustershell() -> None:
    assert make(Asked(hosts="gpu[08-10,12],login")).nodes == ("gpu08", "gpu09", "gpu10", "gpu12", "login")
    for hosts, why in (
        ("gpu[1-", "gpu"),
        ("", "no node"),
        ("a!a", "no node"),
        ("-oProxyCommand=x", "expected letters"),
    ):
        with pytest.raises(InputError, match=why):
            make(Asked(hosts=hosts))
    with pytest.raises(InputError, match="takes --hosts"):
        make(Asked(count=2))


def test_without_clustershell_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ClusterShell.Event", None)
    monkeypatch.delitem(sys.modules, "milabench_ng.fleet.launchers.ssh")
    with pytest.raises(InputError, match=r"pip install \"milabench_ng\[fleet\]\""):
        registry.make("ssh", Asked(hosts="a"))


@needs_sshd
def test_nodes_tell_lines_and_how_they_ended(options: Sequence[str]) -> None:
    heard: dict[str, list[bytes]] = {"one": [], "two": [], "away": []}
    script = "printf '%s\\n' {node} \"it's %h\"; echo why >&2; test {node} = one; exit $?"
    launcher = Ssh(("one", "two", "away"), tuple(options))
    with launcher.run(launcher.nodes, script, lambda node, line: heard[node].append(line)) as ended:
        found = {one.node: one for one in ended}
    assert heard == {"one": [b"one", b"it's %h"], "two": [b"two", b"it's %h"], "away": []}
    assert (found["one"], found["two"]) == (Ended("one", 0, "why"), Ended("two", 1, "why"))
    assert found["away"].status is None
    assert "Connection refused" in found["away"].said


@needs_sshd
def test_a_fleet_of_which_one_node_dies_and_one_is_away(
    options: Sequence[str], stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fleet"
    stand_in.hang("n3")

    killer = threading.Thread(target=kill_soon, args=(tmp_path, "n3"))
    killer.start()
    words = ("--mnb", stand_in.command, "--node-folder", str(tmp_path / "there"), "-o", str(folder), "--", *options)
    profile = str(stand_in.folder / "tiny.json")
    assert call(("fleet", "run", profile, "--launcher", "ssh", "--hosts", "n[1-4],away", *words)) == 1
    killer.join()
    said = capsys.readouterr()
    assert "complete  3 of 5 nodes" in said.out
    assert f"mnb fleet resume {folder}" in said.out
    standings = FleetFolder.read(folder).standings
    lost = {node: one.reason for (node, _), one in standings.items() if one.state == "lost"}
    assert lost.keys() == {"n3", "away"}
    assert "Connection refused" in lost["away"]
    assert standings["n3", "screen"].collected, "what it had is here"
    stand_in.hang("n3", False)
    assert call(("fleet", "resume", str(folder))) == 1
    found = FleetFolder.read(folder)
    assert [len(records_of(one).records) for one in found.sessions] == [2] * 4
    assert [node for (node, _), one in found.standings.items() if one.state == "lost"] == ["away"]
    capsys.readouterr()
    assert call(("fleet", "status", str(folder), "--format", "json")) == 1
    told = json.loads(capsys.readouterr().out)
    assert [one["standing"]["state"] for one in told["nodes"]] == ["lost"] + ["ended"] * 4


def forget_the_end(folder: Path) -> None:
    """Make it as if the command had been killed before the only node ended."""
    ledger = folder / "fleet.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    begun = next(place for place, line in enumerate(lines) if b"NodeStarted" in line)
    ledger.write_bytes(b"".join(lines[: begun + 1]))


@needs_sshd
def test_what_nodes_did_by_themselves_is_collected_and_nothing_here_is_lost(
    options: Sequence[str], stand_in: StandIn, tmp_path: Path
) -> None:
    folder = tmp_path / "fleet"
    words = ("--mnb", stand_in.command, "--node-folder", str(tmp_path / "there"), "-o", str(folder), "--", *options)
    profile = str(stand_in.folder / "tiny.json")
    assert call(("fleet", "run", profile, "--launcher", "ssh", "--hosts", "n1", *words)) == 3
    (node,) = tmp_path.glob("there/*/n1")
    forget_the_end(folder)
    assert call(("fleet", "status", str(folder))) == 1
    assert call(("fleet", "collect", str(folder))) == 0, "its own ledger says that nothing is missing"
    assert (node / "called").read_text() == "jobs\n"
    (node / "screen" / "ledger.jsonl").write_bytes(b"another run\n")
    forget_the_end(folder)
    assert call(("fleet", "collect", str(folder))) == 1
    found = FleetFolder.read(folder)
    assert [one.read_ledger() for one in found.sessions] == [b"another run\n"]
    assert (folder / "nodes/n1/screen.aside-1.tar.gz").exists()
    assert found.strangers == ()


def wait_for(folder: Path, pattern: str) -> None:
    """Wait until both nodes have left such a file."""
    until = time.monotonic() + 60
    while len(list(folder.glob(pattern))) < 2:
        assert time.monotonic() < until, sorted(path.name for path in folder.iterdir())
        time.sleep(0.1)


@needs_sshd
def test_a_command_that_is_interrupted_leaves_nodes_to_themselves(options: Sequence[str], tmp_path: Path) -> None:
    launcher = Ssh(("one", "two"), tuple(options))
    script = f"touch {tmp_path}/{{node}}.begun; sleep 2; touch {tmp_path}/{{node}}.ended"
    with launcher.run(launcher.nodes, script, lambda *_: None):
        wait_for(tmp_path, "*.begun")
    wait_for(tmp_path, "*.ended")


@needs_sshd
@pytest.mark.slow
def test_64_nodes_work_at_once(options: Sequence[str], tmp_path: Path) -> None:
    """None of them ends before all have begun: ClusterShell's usual fan-out would wait for ever."""
    nodes = make(Asked(hosts="n[01-64]")).nodes
    began = time.monotonic()
    script = f"touch {tmp_path}/{{node}}; until test $(ls {tmp_path} | wc -l) = 64; do sleep 1; done"
    with Ssh(nodes, tuple(options)).run(nodes, script, lambda *_: None) as ended:
        assert {one.status for one in ended} == {0}
    print(f"64 nodes by ssh: {time.monotonic() - began:.1f} s")


@needs_sshd
def test_nodes_that_a_busy_server_refuses_are_tried_again(tmp_path: Path) -> None:
    """So does every jump host: MaxStartups is 10 unless somebody has changed it."""
    nodes = tuple(f"n{number}" for number in range(8))
    with (
        ssh_server(tmp_path / "server", startups=1) as options,
        Ssh(nodes, tuple(options)).run(nodes, "true", lambda _node, _line: None) as ended,
    ):
        assert {one.node: one.status for one in ended} == dict.fromkeys(nodes, 0)


def test_a_server_that_refuses_for_good_is_told_with_what_to_change() -> None:
    told = _Told(("a",), lambda _node, _wait_s: None)
    said = b"kex_exchange_identification: Connection closed by remote host"
    told._said["a"].add(said)
    told._tries["a"] = _TRIES
    told.ev_hup(None, "a", 255)
    (one,) = told.ended(lambda _node, _line: None)
    assert (one.status, "MaxStartups" in one.said, said.decode() in one.said) == (None, True, True)


@needs_sshd
def test_nodes_meet_at_the_address_that_ssh_tells(
    options: Sequence[str], stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fleet"
    words = stand_in.over_the_network(tmp_path / "there", folder)
    profile = str(tmp_path / "spread.json")
    Path(profile).write_text(SPREAD)
    call(("fleet", "run", profile, "--launcher", "ssh", "--hosts", "n[1-2]", *words, "--", *options))
    assert "gloo over TCP" in capsys.readouterr().out
    meeting = read_meeting(folder, "screen")
    assert meeting is not None
    assert (len(meeting.hellos), meeting.left) == (2, {})
    assert [one.pair for one in pairs_seen(meeting)] == [("n1", "n2")]
    launches = read_meeting(folder, "launches")
    assert launches is not None
    ran = sorted((one.node, one.ranks, one.problem) for one in launches.launches)
    assert ran == [("n1", 1, ""), ("n1", 2, ""), ("n2", 1, ""), ("n2", 2, "")]

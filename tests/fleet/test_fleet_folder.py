"""A fleet folder as it is read: manifest, ledger, the sessions of its nodes, and what does not belong there."""

from __future__ import annotations

import fcntl
import json
import socket
from pathlib import Path

import msgspec
import pytest

from milabench_ng.fleet.folder import GONE, NOT_HERE, UNWATCHED, FleetFolder, is_fleet, status_of
from milabench_ng.fleet.ledger import (
    FLEET_LEDGER,
    AnyFleetEvent,
    Collected,
    FleetLine,
    NodeEnded,
    NodeLost,
    NodeStarted,
    NotCollected,
    Retested,
    Standing,
    check_fleet_chain,
    standings,
)
from milabench_ng.fleet.manifest import encode_fleet_manifest
from milabench_ng.fleet.nodes import LOCK, NodeName, node_name, retest
from milabench_ng.fleet.verdicts.verdict import NodeVerdict
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.fleet_report_tables import drain_facts
from milabench_ng.records.ledger import check_chain
from milabench_ng.records.names import FLEET_MANIFEST
from tests.fleet.made_folders import BEGUN, UTC, made_ledger, made_manifest, session_folder

MANIFEST = made_manifest(("gpu2", "gpu10"))


def write_fleet(folder: Path, *events: AnyFleetEvent) -> Path:
    """A fleet folder of two nodes in which this happened."""
    folder.mkdir()
    (folder / FLEET_MANIFEST).write_bytes(encode_fleet_manifest(MANIFEST))
    (folder / FLEET_LEDGER).write_bytes(made_ledger(*events))
    return folder


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", BEGUN)
    for node, session in (("gpu10", "retest-10"), ("gpu10", "retest-2"), ("gpu10", "screen"), ("gpu2", "screen")):
        session_folder(folder, node, session).mkdir(parents=True)
    fleet = FleetFolder.read(folder)
    assert (fleet.manifest, fleet.ledger.events, fleet.ledger.problems) == (MANIFEST, (BEGUN,), ())
    assert [(one.node, one.session) for one in fleet.sessions] == [
        ("gpu2", "screen"),
        ("gpu10", "screen"),
        ("gpu10", "retest-2"),
        ("gpu10", "retest-10"),
    ]
    assert (fleet.strangers, fleet.going_on, is_fleet(folder), is_fleet(tmp_path)) == ((), False, True, False)


def test_what_does_not_belong_there_is_named(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", BEGUN)
    for name in ("gpu3/screen", "gpu2/other", "-oProxyCommand/screen", "gpu2/.screen.new", "gpu2/screen.aside-1"):
        (folder / "nodes" / name).mkdir(parents=True)
    (folder / "nodes/gpu2/retest-1.aside-12.tar.gz").touch()
    (folder / "nodes/gpu2/odd.tar.gz").touch()
    (folder / "nodes/gpu10").symlink_to(tmp_path)
    fleet = FleetFolder.read(folder)
    assert (fleet.sessions, fleet.strangers) == (
        (),
        ("-oProxyCommand", "gpu2/odd.tar.gz", "gpu2/other", "gpu3/screen"),
    )


def with_results(folder: Path) -> Path:
    """What is there of the screening of gpu2 once it is collected."""
    made = folder / "nodes" / "gpu2" / "screen.tar.gz"
    made.parent.mkdir(parents=True)
    made.touch()
    return made


def test_how_it_stands_with_a_node_is_the_last_that_happened(tmp_path: Path) -> None:
    screen = {"node": "gpu2", "session": "screen"}
    events = (
        BEGUN,
        NodeStarted(**screen),
        NodeLost(**screen, reason="no route"),
        NotCollected(**screen, reason="no route to collect"),
        NodeStarted(**screen),
        NodeEnded(**screen, status=1),
        Collected(**screen, sha256="c", ledger_sha256="a", summary_sha256="b"),
        Retested(session=retest(1), nodes={"gpu2": "slow"}),
    )
    for length, state, collected in (
        (4, "lost", False),
        (6, "ended", False),
        (7, "ended", True),
    ):
        folder = write_fleet(tmp_path / str(length), *events[:length])
        results = with_results(folder)
        fleet = FleetFolder.read(folder)
        standing = fleet.standings["gpu2", "screen"]
        assert (standing.state, standing.collected) == (state, collected)
        assert standing.reason == ("no route" if state == "lost" else "")
        assert fleet.standings["gpu10", "screen"] == Standing()
    results.unlink()
    gone = FleetFolder.read(folder).standings["gpu2", "screen"]
    assert (gone.state, gone.collected, gone.reason) == ("ended", False, NOT_HERE)
    gone = FleetFolder.read(write_fleet(tmp_path / "killed", *events[:2])).standings["gpu2", "screen"]
    assert (gone.state, gone.reason) == ("cut off", UNWATCHED), "its processes are those of another host"
    fleet = FleetFolder.read(write_fleet(tmp_path / "whole", *events))
    assert fleet.standings["gpu2", "screen"].failed
    assert fleet.standings["gpu2", "retest-1"] == Standing(since_utc=UTC)


def test_collecting_changes_no_state_nor_since_when_it_is_so() -> None:
    screen = {"node": "gpu2", "session": "screen"}
    events = (NodeStarted(**screen), NodeLost(**screen, reason="no route"), NotCollected(**screen, reason="no results"))
    lines = [FleetLine(number=n, previous="", utc=f"minute {n}", what=event) for n, event in enumerate(events)]
    assert standings(lines)["gpu2", "screen"] == Standing(state="lost", reason="no route", since_utc="minute 1")


def test_a_node_of_this_machine_works_as_long_as_it_holds_its_lock(tmp_path: Path) -> None:
    here = msgspec.structs.replace(BEGUN, hostname=socket.gethostname())
    folder = write_fleet(tmp_path / "fleet", here, NodeStarted(node="gpu2", session="screen"))
    manifest = msgspec.structs.replace(MANIFEST, node_folder=str(tmp_path / "nodes"))
    (folder / FLEET_MANIFEST).write_bytes(encode_fleet_manifest(manifest))
    lock = tmp_path / "nodes" / "gpu2" / LOCK
    assert FleetFolder.read(folder).standings["gpu2", "screen"].reason == GONE
    lock.parent.mkdir(parents=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert FleetFolder.read(folder).standings["gpu2", "screen"].reason == UNWATCHED
    assert FleetFolder.read(folder).standings["gpu2", "screen"].reason == GONE


def test_a_ledger_of_which_a_line_was_taken_or_cut_says_so() -> None:
    content = made_ledger(
        BEGUN, NodeStarted(node="gpu2", session="screen"), NodeStarted(node="gpu10", session="screen")
    )
    first, second, third = content.splitlines(keepends=True)
    assert check_fleet_chain(content).problems == ()
    assert check_fleet_chain(first + third).problems == (
        "line 2: its number is 2, 1 was expected",
        "line 2: the line before it is not the original one",
    )
    torn = check_fleet_chain(first + second[:-5])
    assert (torn.problems, torn.torn, len(torn.entries)) == ((), second[:-5], 1)


def test_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", BEGUN)
    raw = json.loads((folder / FLEET_MANIFEST).read_text())
    (folder / FLEET_MANIFEST).write_text(json.dumps(raw | {"nodes": ["../up"]}))
    with pytest.raises(InputError, match="nodes"):
        FleetFolder.read(folder)
    (folder / FLEET_MANIFEST).write_text(json.dumps(raw | {"schema": 2}))
    with pytest.raises(InputError, match="Update mnb"):
        FleetFolder.read(folder)


def test_a_fleet_that_is_written_to_is_going_on(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", BEGUN, NodeStarted(node="gpu2", session="screen"))
    with (folder / FLEET_LEDGER).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert FleetFolder.read(folder).going_on
        assert FleetFolder.read(folder).standings["gpu2", "screen"].state == "running"
    assert not FleetFolder.read(folder).going_on


def test_a_node_without_a_manifest_is_an_error_of_that_session(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", BEGUN)
    session_folder(folder, "gpu2", "screen").mkdir(parents=True)
    (one,) = FleetFolder.read(folder).sessions
    assert (one.name, one.read_ledger(), status_of(check_chain(one.read_ledger()))) == ("gpu2 screen", b"", None)


def test_a_node_is_listed_once(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", BEGUN)
    twice = msgspec.structs.replace(MANIFEST, nodes=("gpu2", "gpu2"))
    (folder / FLEET_MANIFEST).write_bytes(encode_fleet_manifest(twice))
    with pytest.raises(InputError, match="a node is listed twice"):
        FleetFolder.read(folder)


@pytest.mark.parametrize("name", ["gpu1\n", "gpu1.", "-oProxyCommand=x", "../up", "a/b", "", ".", "a b"])
def test_what_names_no_node(name: str) -> None:
    with pytest.raises(
        InputError,
        match=r"expected letters, digits, dots, dashes and underscores, .* in ~/\.ssh/config",
    ):
        node_name(name)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(name, NodeName)


def test_only_what_a_node_did_itself_drains_it() -> None:
    """A lost one is to be looked at: what ended its work may be the connection, or a disk."""
    verdicts = (
        NodeVerdict(node="n1", verdict="lost", why="ssh lost the connection"),
        NodeVerdict(node="n2", verdict="lost", why="mkdir: Read-only file system"),
        NodeVerdict(node="n3", verdict="faulty", why="launches failed in a retest"),
        NodeVerdict(node="n4", verdict="inconclusive"),
    )
    drained, looked_at = drain_facts(verdicts)
    assert (drained.name, "nodename=n3" in drained.text) == ("to drain", True)
    assert (looked_at.name, looked_at.text.partition(":")[0]) == ("look first", "n1, n2")
    assert tuple(drain_facts(verdicts[-1:])) == ()

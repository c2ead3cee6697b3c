"""Real processes that meet over this machine's loopback interface, of which one dies in the middle."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import msgspec
import psutil
import pytest

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers.interface import Ended, Heard
from milabench_ng.fleet.launchers.local import Local
from milabench_ng.fleet.manifest import FleetManifest
from milabench_ng.fleet.network.launches import over_nodes_report
from milabench_ng.fleet.network.meetings import pairs_seen
from milabench_ng.fleet.network.running import meet
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.events import Slice
from milabench_ng.records.links import Kept, LinkBegun, LinkLeft, MeetingPlan, NodesLaunch, Round
from milabench_ng.worker.groups import group_of
from milabench_ng.worker.over_nodes import StoreChannel
from tests.fleet.made_folders import write_frame
from tests.fleet.test_local_fleet import manifest

pytestmark = pytest.mark.slow
A_B, A_C, B_C = (Round(shape="pairs", groups=(both,)) for both in (("a", "b"), ("c", "a"), ("b", "c")))
SPREAD = NodesLaunch(
    test="spread",
    workload="scaling",
    unit="images",
    arguments={
        **read_builtin()["scaling"].defaults,
        "arch": "resnet18",
        "batch_size": {"16GiB": 2, "80GiB": 64},
        "image_size": 32,
    },
    window_s=1.0,
)
MESSAGES = NodesLaunch(
    test="messages",
    workload="collectives",
    unit="bus MiB",
    arguments={
        **read_builtin()["collectives"].defaults,
        **dict.fromkeys(("small_kib", "large_mib", "block_mib", "exchange_mib"), 1),
    },
    least_devices=2,
    window_s=1.0,
)
RING = Round(shape="ring", groups=(("a", "b", "c"),))


class Mortal(Local):
    """Local nodes, of which ``c`` is killed as soon as it tells a result."""

    def __init__(self, nodes: tuple[str, ...], file: Path) -> None:
        super().__init__(nodes)
        self._file = file

    def run(self, nodes: Collection[str], script: str, heard: Heard) -> AbstractContextManager[Iterator[Ended]]:
        def listened(node: str, line: bytes) -> None:
            heard(node, line)
            if node == "c" and b'"type":"hello"' not in line:
                self._file.touch()

        watch = f"test {{node}} != c || (until test -e {self._file}; do sleep 0.1; done; kill -9 -$$) &\n"
        return super().run(nodes, watch + script, listened)


def folder_of(tmp_path: Path, launcher: Local) -> FleetFolder:
    write_frame(tmp_path / "fleet", launcher.nodes, ())
    asked: FleetManifest = manifest(launcher, tmp_path, (sys.executable, "-m", "milabench_ng"))
    made = msgspec.structs.replace(asked, variables={"NCCL_DEBUG": "it's WARN"})
    found = FleetFolder.read(tmp_path / "fleet")
    return FleetFolder(path=found.path, manifest=made, ledger=found.ledger, sessions=(), strangers=(), going_on=False)


def test_a_node_that_says_no_number_of_devices_costs_itself_only() -> None:
    """Whoever reaches the store can write into it."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    from milabench_ng.worker.meeting import serve

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))
    said = {"a": b"4", "b": b"x", "c": b"2147483648", "d": b"\xff", "f": b"2"}
    for node in "abcdef":
        store.set(f"ready/-1/{node}/0", "")
    for node, count in said.items():
        store.set(f"devices/{node}", count)  # type: ignore[arg-type]
    told: list[Kept] = []
    serve(store, MeetingPlan(nodes=tuple("abcdef"), rounds=()), told.append)
    assert {one.node for one in told if isinstance(one, LinkLeft)} == set("bcde")
    assert told[-1] == LinkBegun(backend="nccl", devices=2)
    assert msgspec.json.decode(store.get("gone")) == list("bcde")


def test_a_node_on_the_host_of_the_store_meets_nodes_elsewhere_by_another_interface_than_loopback() -> None:
    """There the host's own name often leads to 127.0.1.1, and nobody else reaches its loopback interface."""
    from torch.distributed import HashStore  # type: ignore[attr-defined]

    from milabench_ng.worker.links import interface_among

    store = HashStore()
    assert interface_among(store, "lo", 1) == "lo", "all nodes are on this host"
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            if name != "lo" and one.family == socket.AF_INET:
                store.set("elsewhere", one.address)
                assert interface_among(store, "lo", 1) == name
                assert interface_among(store, "eth7", 1) == "eth7"


def test_variables_that_would_break_the_line_are_not_told() -> None:
    from milabench_ng.worker.links import short_enough

    few = {"NCCL_DEBUG": "WARN", "UCX_TLS": "rc"}
    assert short_enough(few) == few
    assert short_enough({**few, "NCCL_TOPO_FILE": "x" * 600}) == few


def test_a_group_that_failed_to_begin_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import torch.distributed as dist

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    plan, cpu = MeetingPlan(nodes=("a", "b"), rounds=(), message_s=0.1), torch.device("cpu")
    store = dist.HashStore()
    store.set("here/1", "")  # and then it dies
    with pytest.raises(RuntimeError), group_of(store, plan, "gloo", 0, 2, cpu):
        pass
    with group_of(dist.HashStore(), plan, "gloo", 0, 1, cpu):
        assert dist.group.WORLD is not None
        assert dist.group.WORLD.group_name == "0", "as in processes where none failed"
    assert not dist.is_initialized()


def test_nodes_that_meet_tell_their_links_and_a_node_that_dies_holds_nobody_up(
    tmp_path: Path,
) -> None:
    """At an address of IPv6, if there are any here."""
    launcher = Mortal(("a", "b", "c"), tmp_path / "dies")
    found = folder_of(tmp_path, launcher)
    there = "[::1]" if socket.has_dualstack_ipv6() else found.manifest.rendezvous
    fleet = msgspec.structs.replace(found, manifest=msgspec.structs.replace(found.manifest, rendezvous=there))
    plan = MeetingPlan(
        nodes=launcher.nodes,
        rounds=(A_B, A_C, *([B_C] * 10), A_B, RING),
        start_s=200,
        round_s=30,
        message_s=20,
        block_mib=1,
    )
    meeting = meet(fleet, launcher, plan)
    assert meeting.left.keys() == {"c"}
    assert "it was not ready in time after round" in meeting.left["c"].reason
    assert "killed" in meeting.left["c"].reason
    assert 1 <= meeting.left["c"].round < len(plan.rounds)
    assert {one.interface for one in meeting.hellos} == {"lo"}
    assert {one.node: one.variables["NCCL_DEBUG"] for one in meeting.hellos} == dict.fromkeys("abc", "it's WARN")
    seen = [one for one in pairs_seen(meeting) if "c" not in one.pair]
    assert [one.pair for one in seen] == [("a", "b"), ("a", "b")]
    assert not [one for one in pairs_seen(meeting) if one.problem], "what it lacked was the node"
    assert [(one.problem, one.log_rate is None, one.latency_us is None) for one in seen] == [("", False, False)] * 2
    ring = [one for one in meeting.results if one.round == len(plan.rounds) - 1]
    assert [(one.node, one.problem, one.gb_s is not None) for one in ring] == [("a", "", True)]


def test_a_launch_over_nodes_ends_on_the_same_step_everywhere_and_one_that_loses_a_node_fails_in_time(
    tmp_path: Path,
) -> None:
    launcher = Mortal(("a", "b", "c"), tmp_path / "dies")
    fleet = folder_of(tmp_path, launcher)
    over_two = (("a", "b"),)
    rounds = (
        Round(shape="launch", groups=(("a",), ("b",)), launch=MESSAGES),
        Round(shape="launch", groups=over_two, launch=SPREAD),
        Round(shape="launch", groups=over_two, launch=MESSAGES),
        Round(shape="launch", groups=(("c",),), launch=SPREAD),
        *([Round(shape="launch", groups=(("c", "a"),), launch=SPREAD)] * 10),
        Round(shape="launch", groups=over_two, launch=MESSAGES),
    )
    plan = MeetingPlan(nodes=launcher.nodes, rounds=rounds, start_s=200, round_s=60, message_s=30)
    meeting = meet(fleet, launcher, plan)
    assert meeting.left.keys() == {"c"}
    numbers = (1, 2, len(rounds) - 1)
    whole = [one for one in meeting.launches if one.round in numbers]
    assert sorted((one.round, one.node, one.ranks, one.problem) for one in whole) == [
        (number, node, 2, "") for number in numbers for node in "ab"
    ]
    for number in numbers:
        assert len({one.steps for one in whole if one.round == number}) == 1
    assert not any(one.round == 0 for one in meeting.launches), "alone there is nobody to send messages to"
    first = [(one.test, one.nodes, one.ranks, one.failed) for one in over_nodes_report(meeting).rows[:2]]
    assert first == [("spread", 2, 2, 0), ("messages", 2, 2, 0)]


def test_steps_after_the_last_slice_count_too() -> None:
    """Ranks end their slices at different steps, and a launch whose ranks did unequal steps would count as failed."""
    from torch.distributed import HashStore  # type: ignore[attr-defined]

    channel = StoreChannel(HashStore(), 0)
    channel.send(Slice(rank=0, start_s=0.0, length_s=0.5, count=25, steps=25, wait_s=0.0))
    assert not channel.ended(26)
    assert channel.steps == 26

"""Who meets whom, what is said of their links, and what a report on a fleet makes of it."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from milabench_ng.cli import call
from milabench_ng.cli.fleet_request import launches_over_nodes
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.run_options import RunOptions
from milabench_ng.fleet.bundling import opened_fleet, pack_fleet
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers.interface import Ended
from milabench_ng.fleet.ledger import NetworkMeasured
from milabench_ng.fleet.manifest import encode_fleet_manifest
from milabench_ng.fleet.network.judging import STRICT, NetworkVerdict, judge_network, meets_again
from milabench_ng.fleet.network.launches import over_nodes_report
from milabench_ng.fleet.network.meetings import (
    NOTHING_TOLD,
    STUCK,
    Meeting,
    PairSeen,
    fits,
    meetings_left,
    pairs_seen,
    read_meeting,
    rings_seen,
    write_meeting,
)
from milabench_ng.fleet.network.report import network_report
from milabench_ng.fleet.network.rounds import Pair, launch_rounds, pair, pair_rounds, ring_rounds, rounds_of
from milabench_ng.fleet.network.running import _Heard, left_because
from milabench_ng.fleet.retesting import nodes_left
from milabench_ng.model.errors import InputError
from milabench_ng.records.links import (
    TOO_LATE,
    LinkBegun,
    LinkHello,
    LinkLeft,
    LinkResult,
    MeetingPlan,
    NodesLaunch,
    RankResult,
    Round,
)
from milabench_ng.records.names import FLEET_MANIFEST
from tests.fleet.made_folders import write_fleet

NODES = tuple(f"n{number:02}" for number in range(8))
Gb = Callable[[Pair], float | None]
"""10^9 bytes per second of a pair, or None if it fails."""


def noise(one: Pair, time: int) -> float:
    return math.exp(random.Random(f"{one} {time}").gauss(0, 0.01))


def met(nodes: tuple[str, ...], rate: Gb, rounds: tuple[Round, ...]) -> Meeting:
    """A meeting whose rates are these, but for a little noise."""
    results = []
    for number, one in enumerate(rounds):
        for place, group in enumerate(one.groups):
            gb_s = rate(pair(*group)) if one.shape == "pairs" else 1.0
            results.append(
                LinkResult(
                    round=number,
                    group=place,
                    device=0,
                    node=group[0],
                    backend="gloo",
                    gb_s=None if gb_s is None else gb_s * noise(group[:2], number),
                    latency_us=None if gb_s is None or one.shape == "ring" else 40.0,
                    problem="connection reset" if gb_s is None else "",
                )
            )
    hellos = tuple(LinkHello(node=node, devices=0, interface="lo", variables={"NCCL_X": "1"}) for node in nodes)
    return Meeting(plan=MeetingPlan(nodes=nodes, rounds=rounds), hellos=hellos, results=tuple(results))


def judged(rate: Gb, nodes: tuple[str, ...] = NODES) -> tuple[NetworkVerdict, tuple[Meeting, Meeting]]:
    screen = met(nodes, rate, (*pair_rounds(nodes), *ring_rounds(nodes)))
    seen = tuple(pairs_seen(screen))
    retest = met(nodes, rate, rounds_of(meets_again(seen).pairs, STRICT.retests))
    return judge_network(seen, tuple(pairs_seen(retest)), {}), (screen, retest)


LAUNCH = NodesLaunch(test="spread", workload="scaling", unit="images", arguments={}, window_s=1.0)


def launched(rate: Callable[[tuple[str, ...], str], float | None]) -> Meeting:
    """Launches over 1, 2, 4 and 8 nodes; ``rate``: of a node in a group."""
    rounds = launch_rounds(NODES, (LAUNCH,))
    told = tuple(
        RankResult(
            round=number,
            group=place,
            device=0,
            node=node,
            backend="gloo",
            ranks=len(group),
            rate=rate(group, node),
            steps=20,
            problem="" if rate(group, node) else "connection reset",
        )
        for number, one in enumerate(rounds)
        for place, group in enumerate(one.groups)
        for node in group
    )
    return Meeting(plan=MeetingPlan(nodes=NODES, rounds=rounds), launches=told)


def bad(states: Mapping[object, object]) -> dict[object, str]:
    return {name: one.state for name, one in states.items() if one.state != "pass"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [2, 3, 8, 9, 16])
def test_few_nodes_all_meet_once_and_nobody_is_in_two_pairs_at_a_time(count: int) -> None:
    nodes = tuple(map(str, range(count)))
    rounds = pair_rounds(nodes)
    for one in rounds:
        there = [node for group in one.groups for node in group]
        assert len(set(there)) == len(there)
    found = sorted(tuple(sorted(group)) for one in rounds for group in one.groups)
    assert found == sorted(tuple(sorted(both)) for both in itertools.combinations(nodes, 2))
    assert len(rounds) == count - 1 + count % 2


def test_many_nodes_meet_in_so_many_rounds_as_their_logarithm() -> None:
    nodes = tuple(map(str, range(1000)))
    rounds = pair_rounds(nodes)
    assert len(rounds) == 20
    assert all(len(one.groups) == 500 for one in rounds)
    assert len({frozenset(group) for one in rounds for group in one.groups}) == 10_000


def test_rings_double_and_the_last_has_all_nodes() -> None:
    rings = ring_rounds(tuple(map(str, range(10))))
    assert [[len(group) for group in one.groups] for one in rings] == [[4, 4], [8], [10]]
    assert ring_rounds(("a", "b")) == ()


def test_pairs_that_meet_again_are_in_as_few_rounds_as_their_nodes_allow() -> None:
    rounds = rounds_of([("a", "b"), ("a", "c"), ("c", "d"), ("a", "b")], 2)
    assert [one.groups for one in rounds] == [(("a", "b"), ("c", "d")), (("a", "c"),)] * 2


def test_a_node_whose_links_are_all_slow_is_no_slow_link_and_the_other_way_round() -> None:
    slow_link = pair("n02", "n05")

    def rate(one: Pair) -> float:
        return 10.0 * (0.5 if "n01" in one else 1.0) * (0.6 if one == slow_link else 1.0)

    verdict, _ = judged(rate)
    assert bad(verdict.nodes) == {"n01": "slow"}
    assert bad(verdict.links) == {slow_link: "slow"}
    ratio = verdict.nodes["n01"].ratio
    assert ratio is not None
    assert ratio.low < 0.5 < ratio.high
    assert verdict.links[slow_link].retests == STRICT.retests


def test_healthy_links_pass_and_nothing_meets_again() -> None:
    verdict, (_, retest) = judged(lambda _: 10.0)
    assert (bad(verdict.nodes), bad(verdict.links), retest.plan.rounds) == ({}, {}, ())
    assert verdict.expected_false_alarms < 0.01


def test_what_was_slow_once_only_passes() -> None:
    link = pair("n00", "n01")
    screen = met(NODES, lambda one: 5.0 if one == link else 10.0, pair_rounds(NODES))
    seen = tuple(pairs_seen(screen))
    again = meets_again(seen)
    assert again.links == (link,)
    retest = met(NODES, lambda _: 10.0, rounds_of(again.pairs, 3))
    assert bad(judge_network(seen, tuple(pairs_seen(retest)), {}).links) == {}
    assert bad(judge_network(seen, (), {}).links) == {link: "inconclusive"}


def test_a_link_that_fails_again_is_broken_and_so_is_a_node_without_one_that_works() -> None:
    link = pair("n02", "n05")
    verdict, _ = judged(lambda one: None if one == link or "n07" in one else 10.0)
    assert {name for name, state in bad(verdict.links).items() if state == "broken"} >= {link}
    assert bad(verdict.nodes) == {"n07": "broken"}
    assert verdict.nodes["n07"].why == "none of its links works"


def test_of_three_nodes_nobody_says_which_is_slow() -> None:
    verdict, _ = judged(lambda one: 1.0 if "n00" in one else 10.0, NODES[:3])
    assert set(bad(verdict.nodes).values()) == set(bad(verdict.links).values()) == {"inconclusive"}
    assert verdict.expected_false_alarms == 0.0


def test_a_pair_of_several_devices_is_as_fast_as_its_slowest() -> None:
    plan = MeetingPlan(nodes=("a", "b"), rounds=(Round(shape="pairs", groups=(("b", "a"),)),))
    results = tuple(
        LinkResult(round=0, group=0, device=place, node="b", backend="nccl", gb_s=rate, latency_us=5.0 - place)
        for place, rate in enumerate((40.0, 10.0))
    )
    (seen,) = pairs_seen(Meeting(plan=plan, begun=LinkBegun(backend="nccl", devices=2), results=results))
    assert seen == PairSeen(pair=("a", "b"), log_rate=math.log(10.0), latency_us=5.0)


def with_meetings(folder: Path, rate: Gb) -> None:
    """A fleet of healthy nodes that have met."""
    folder.mkdir()
    events = []
    for name, meeting in zip(("screen", "retest"), judged(rate)[1], strict=True):
        sha256 = write_meeting(folder, name, meeting)  # type: ignore[arg-type]
        events.append(NetworkMeasured(meeting=name, nodes=NODES, left=(), sha256=sha256))  # type: ignore[arg-type]
    write_fleet(folder, NODES, more=events)


def test_a_report_calls_a_node_with_slow_links_slow_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fleet"
    with_meetings(folder, lambda one: 5.0 if "n01" in one else 10.0)
    page = tmp_path / "page.html"
    assert call(("report", str(folder), "--html", str(page))) == 1
    text = capsys.readouterr().out
    assert "1 slow, 7 pass" in text
    assert "gloo over TCP between CPUs, not the fabric of the GPUs" in text
    assert "NCCL_X=1" in text
    assert "nodename=n01" in text
    assert "nodes by nodes" in page.read_text()
    assert call(("report", str(folder), "--format", "json")) == 1
    (slow,) = (
        one for one in json.loads(capsys.readouterr().out)["report"]["verdict"]["nodes"] if one["verdict"] == "slow"
    )
    assert (slow["node"], slow["cause"]["kind"], slow["cause"]["test"]) == ("n01", "link", "network")


def test_the_bundle_of_a_fleet_has_its_network(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    with_meetings(folder, lambda _: 10.0)
    packed = pack_fleet(folder, tmp_path / "bundle.tar.gz")
    with opened_fleet(packed.path) as opened:
        assert opened.damage == ()
        assert read_meeting(opened.fleet.path, "screen") == read_meeting(folder, "screen")


def test_a_fleet_whose_nodes_have_not_met_has_something_left(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    with_meetings(folder, lambda _: 10.0)
    found = FleetFolder.read(folder)
    asked = msgspec.structs.replace(found, manifest=msgspec.structs.replace(found.manifest, network=True))
    assert (nodes_left(found), nodes_left(asked)) == ((), ())
    earlier = msgspec.structs.replace(asked.ledger, entries=asked.ledger.entries[:-1])
    before = msgspec.structs.replace(asked, ledger=earlier)
    assert nodes_left(before) == NODES


def test_a_meeting_that_was_edited_is_found_and_one_that_is_damaged_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fleet"
    with_meetings(folder, lambda _: 10.0)
    file = folder / "network" / "screen.jsonl"
    file.write_bytes(file.read_bytes().replace(b"40.0", b"39.0", 1))
    call(("verify", str(folder)))
    assert "network/screen.jsonl is not what fleet.jsonl says" in capsys.readouterr().out
    for content in (
        b"",
        b"{}\n",
        b'{"type":"left","node":"a","reason":""}\n',
        file.read_bytes().replace(b'"n01"]', b'"n01","n02"]', 1),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"screen\.jsonl"):
            read_meeting(folder, "screen")
    call(("report", str(folder)))
    assert "screen.jsonl" in capsys.readouterr().out


def test_the_rate_by_the_number_of_nodes_is_that_of_the_median_group() -> None:
    by_size = {1: 100.0, 2: 90.0, 4: 80.0, 8: 70.0}

    def rate(group: tuple[str, ...], node: str) -> float:
        slow = 0.5 if group == ("n02", "n03") else 1.0
        return by_size[len(group)] * slow + (node == group[0])

    report = over_nodes_report(launched(rate))
    rows = [(one.nodes, one.ranks, one.groups, one.failed) for one in report.rows]
    assert rows == [(1, 1, 8, 0), (2, 2, 4, 0), (4, 4, 2, 0), (8, 8, 1, 0)]
    alone, two, *_, whole = report.rows
    assert (alone.per_rank, two.per_rank, two.worst, two.worst_begins) == (101.0, 90.5, 45.5, "n02")
    assert (whole.per_rank, whole.total) == (70.125, 561.0)
    assert whole.of_fewest == pytest.approx(70.125 / 101)


def test_a_group_that_fails_or_whose_ranks_do_unequal_work_has_no_rate() -> None:
    meeting = launched(lambda group, node: None if (len(group), node) == (8, "n03") else 100.0)
    (whole,) = (one for one in over_nodes_report(meeting).rows if one.nodes == 8)
    assert (whole.per_rank, whole.failed, whole.problem) == (None, 1, "connection reset")
    ranks = meeting.launches
    fewer = msgspec.structs.replace(meeting, launches=ranks[1:])
    assert over_nodes_report(fewer).rows[0].failed == 1, "one of eight groups told nothing"
    more = (*ranks[:8], msgspec.structs.replace(ranks[8], steps=21), *ranks[9:])
    assert over_nodes_report(msgspec.structs.replace(meeting, launches=more)).rows[1].failed == 1


def test_a_report_shows_launches_over_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "fleet"
    meeting = launched(lambda *_: 100.0)
    folder.mkdir()
    sha256 = write_meeting(folder, "launches", meeting)
    write_fleet(folder, NODES, more=[NetworkMeasured(meeting="launches", nodes=NODES, left=(), sha256=sha256)])
    assert call(("report", str(folder))) == 0
    text = capsys.readouterr().out
    assert "launches over nodes: the rate by the number of nodes" in text
    assert "gloo over TCP between CPUs, not the fabric of the GPUs; no isolation, and no records" in text
    call(("verify", str(folder)))
    assert "launches.jsonl" not in capsys.readouterr().out


def test_options_by_memory_class_are_chosen_on_the_nodes(tmp_path: Path) -> None:
    profile = tmp_path / "tiny.json"
    profile.write_text("""{"wide": {"workload": "scaling", "arguments": {"batch_size": {"16GiB": 8, "80GiB": 64}}}}""")
    (launch,) = launches_over_nodes(RunOptions().request(profile, NodeOptions()))
    assert (launch.test, launch.arguments["batch_size"]) == ("wide", {"16GiB": 8, "80GiB": 64})
    assert msgspec.json.decode(msgspec.json.encode(launch), type=NodesLaunch) == launch


def test_a_profile_without_such_tests_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.json").write_text('{"toy_reg": {"workload": "toy_reg"}}')
    words = ("fleet", "run", str(tmp_path / "tiny.json"), "--launcher", "local", "--nodes", "2", "--over-nodes")
    assert call((*words, "-o", str(tmp_path / "f"))) == 2
    assert "has no test of scaling or collectives" in capsys.readouterr().err


def test_a_link_that_failed_once_is_judged_by_its_retests() -> None:
    nodes = tuple(f"n{number}" for number in range(8))
    pairs = [pair(first, second) for place, first in enumerate(nodes) for second in nodes[place + 1 :]]
    odd = pairs[0]
    screen = [
        PairSeen(pair=one, log_rate=None if one == odd else 0.01 * place / len(pairs))
        for place, one in enumerate(pairs)
    ]
    again = meets_again(screen)
    assert odd in again.links
    retest = [
        PairSeen(pair=one, log_rate=math.log(0.1) if one == odd else 0.005) for one in again.pairs for _ in range(3)
    ]
    assert judge_network(screen, retest, {}).links[odd].state == "slow"


@pytest.mark.parametrize(
    "line",
    [
        b'mnb-link {"x":' + b"[" * 50_000,
        b'mnb-link {"type":"hello","node":"n0","devices":0,"variables":{},"interface":"\xff"}',
        b'mnb-link {"type":"hello","node":"n0","devices":2147483647,"variables":{},"interface":"lo"}',
        b'mnb-link {"type":"hello","node":"n0","devices":0,"variables":{},"interface":"' + b"x" * 65536 + b'"}',
    ],
    ids=["open", "no text", "devices", "long"],
)
def test_no_line_of_a_node_stops_the_others(line: bytes) -> None:
    heard = _Heard(MeetingPlan(nodes=("n0",), rounds=()))
    heard.line("n0", line)
    assert not heard.hellos


def test_what_a_node_says_twice_counts_once_and_what_is_not_planned_not_at_all() -> None:
    heard = _Heard(MeetingPlan(nodes=("n0", "n1"), rounds=(Round(shape="pairs", groups=(("n0", "n1"),)),)))
    result = LinkResult(round=0, group=0, device=0, node="n0", backend="gloo", gb_s=1.0)
    for gb_s, number, group in ((1.0, 0, 0), (2.0, 0, 0), (1.0, 1, 0), (1.0, 0, 1)):
        told = msgspec.structs.replace(result, gb_s=gb_s, round=number, group=group)
        heard.line("n0", b"mnb-link " + msgspec.json.encode(told))
    assert list(heard.told.values()) == [result]


@pytest.mark.parametrize("gb_s", [1e-300, 1e16])
def test_a_number_that_nobody_measures_is_not_read(tmp_path: Path, gb_s: float) -> None:
    """Its logarithm is so far from others that their ratio is no number."""
    meeting = met(("a", "b"), lambda _: gb_s, pair_rounds(("a", "b")))
    write_meeting(tmp_path, "screen", meeting)
    with pytest.raises(InputError, match="gb_s"):
        read_meeting(tmp_path, "screen")


def test_wild_links_are_judged() -> None:
    """The smallest and the largest rates that are read, on half of the links each."""
    verdict, _ = judged(lambda one: 1e-14 if "n01" in one or "n03" in one else 1e14, NODES[:5])
    ratios = [one.ratio for one in (*verdict.nodes.values(), *verdict.links.values()) if one.ratio]
    assert ratios
    assert all(math.isfinite(one.high) for one in ratios)


def test_ranks_that_state_another_size_cost_their_own_launch_only() -> None:
    meeting = launched(lambda *_: 100.0)
    plan, begun = meeting.plan, meeting.begun
    many = msgspec.structs.replace(meeting.launches[0], ranks=(1 << 31) - 1)
    told = tuple(one for one in (many, *meeting.launches[1:]) if fits(one, plan, begun))
    first = over_nodes_report(msgspec.structs.replace(meeting, launches=told)).rows[0]
    assert (first.ranks, first.groups, first.failed) == (1, 8, 1)


def test_a_launch_that_nobody_ran_is_in_the_table_and_one_for_more_ranks_is_not() -> None:
    meeting = launched(lambda *_: 100.0)
    left = {"n07": LinkLeft(node="n07", round=2, reason="it died")}
    fewer = tuple(one for one in meeting.launches if one.round < 3)
    report = over_nodes_report(msgspec.structs.replace(meeting, launches=fewer, left=left))
    assert [(one.nodes, one.groups, one.failed, one.problem) for one in report.rows] == [
        *((1, 8, 0, ""), (2, 4, 0, ""), (4, 2, 0, "")),
        (8, 1, 1, "n07 left"),
    ]
    assert report.exit_code == 1
    two = msgspec.structs.replace(LAUNCH, least_devices=2)
    rounds = tuple(msgspec.structs.replace(one, launch=two) for one in meeting.plan.rounds)
    plan = msgspec.structs.replace(meeting.plan, rounds=rounds)
    assert [one.nodes for one in over_nodes_report(msgspec.structs.replace(meeting, plan=plan)).rows] == [2, 4, 8]


def test_a_pair_whose_nodes_stay_and_tell_nothing_has_failed() -> None:
    meeting = met(NODES[:3], lambda _: 10.0, pair_rounds(NODES[:3]))
    fewer = msgspec.structs.replace(meeting, results=meeting.results[1:])
    assert [one.problem for one in pairs_seen(fewer)] == [NOTHING_TOLD, "", ""]


def test_a_ring_has_the_nodes_that_left_after_it() -> None:
    nodes = NODES[:4]
    meeting = met(nodes, lambda _: 10.0, (*pair_rounds(nodes), *ring_rounds(nodes)))
    number = len(meeting.plan.rounds) - 1
    for left, there in ((number + 1, nodes), (number, nodes), (number - 1, nodes[:3])):
        late = {"n03": LinkLeft(node="n03", round=left, reason="it died")}
        (ring,) = rings_seen(msgspec.structs.replace(meeting, left=late))
        assert (ring.nodes, ring.problem) == (there, "")


def test_the_reason_of_the_store_comes_before_that_of_the_node() -> None:
    late = LinkLeft(node="a", round=3, reason="it was not ready in time after round 4 of 9")
    unwaited = LinkLeft(node="a", round=9, reason="it was too late")
    assert left_because(late, Ended("a", TOO_LATE, "went on without this node"), unwaited) == late
    died = left_because(late, Ended("a", None, "its process was killed (SIGKILL)"), unwaited)
    assert (died.round, died.reason) == (3, f"{late.reason}: its process was killed (SIGKILL)")
    gone = left_because(None, Ended("a", 1, "no route"), unwaited)
    assert gone == LinkLeft(node="a", round=9, reason="no route")


def test_a_link_in_which_both_nodes_are_stuck_is_accused_and_neither_node() -> None:
    """Neither says which of them holds the other up, and what they showed each of the others before is kept."""
    nodes = NODES[:5]
    rounds = pair_rounds(nodes)
    number = len(rounds) - 1
    stuck = rounds[number].groups[0]
    meeting = met(nodes, lambda one: None if one == pair(*stuck) else 10.0, rounds)
    late = {node: LinkLeft(node=node, round=number, reason="it was not ready in time") for node in stuck}
    both = msgspec.structs.replace(meeting, left=late)
    assert {one.pair: one.problem for one in pairs_seen(both) if one.problem} == {pair(*stuck): STUCK}
    assert len(list(pairs_seen(both))) == 10
    made = network_report(both, None)
    assert {one.node: one.judged.state for one in made.nodes if one.node in stuck} == dict.fromkeys(
        stuck, "inconclusive"
    )
    one = msgspec.structs.replace(meeting, left={stuck[0]: late[stuck[0]]})
    assert len(list(pairs_seen(one))) == 9, "what it lacked was the node"
    assert [each.node for each in network_report(one, None).nodes if each.judged.state == "broken"] == [stuck[0]]


@pytest.mark.parametrize("working", [(), (pair("n00", "n01"),)])
def test_nodes_that_do_not_reach_each_other_are_not_accused(working: tuple[Pair, ...]) -> None:
    verdict, _ = judged(lambda one: 10.0 if one in working else None)
    assert set(bad(verdict.nodes).values()) == {"inconclusive"}
    assert "GLOO_SOCKET_IFNAME" in verdict.nodes["n05"].why
    assert {one for one, judged in verdict.links.items() if judged.state == "inconclusive"} == set(working)
    assert bad(verdict.links).keys() == verdict.links.keys(), "nothing says whether the only one that works is slow"


def test_a_node_that_never_came_to_the_meeting_is_not_measured() -> None:
    """It may be behind a jump host, whose address it takes for that of the head."""
    meeting = met(NODES, lambda one: None if "n07" in one else 10.0, pair_rounds(NODES))
    left = {"n07": LinkLeft(node="n07", round=0, reason="it was not ready in time at the start", came=False)}
    made = network_report(msgspec.structs.replace(meeting, left=left), None)
    (one,) = (each for each in made.nodes if each.judged.state != "pass")
    assert (one.node, one.judged.state) == ("n07", "inconclusive")
    assert "--rendezvous" in one.judged.why
    assert made.exit_code == 0, "its links were not measured"


def test_whoever_cannot_connect_knows_well_before_the_round_is_over() -> None:
    from milabench_ng.worker.groups import patience_s

    plan = MeetingPlan(nodes=("a", "b"), rounds=())
    assert 5 * patience_s(plan, "gloo") == plan.round_s / 2, "gloo tries for five times as long"
    assert patience_s(plan, "nccl") == plan.message_s


def test_slow_and_undecided_links_decide_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = pair("n02", "n05")
    folder = tmp_path / "fleet"
    with_meetings(folder, lambda one: 6.0 if one == link else 10.0)
    assert call(("report", str(folder))) == 1
    assert "8 pass, 1 slow link" in capsys.readouterr().out
    (folder / "network" / "retest.jsonl").unlink()
    assert call(("report", str(folder))) == 3
    assert "8 pass, 1 inconclusive link" in capsys.readouterr().out


def test_a_fleet_whose_nodes_have_still_to_meet_is_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", NODES)
    asked = msgspec.structs.replace(FleetFolder.read(folder).manifest, network=True)
    (folder / FLEET_MANIFEST).write_bytes(encode_fleet_manifest(asked))
    assert call(("report", str(folder))) == 3
    assert "nodes have still to meet (screen, retest): mnb fleet resume" in capsys.readouterr().out
    call(("fleet", "status", str(folder)))
    *_, met, following = capsys.readouterr().out.splitlines()
    assert met.split(maxsplit=1) == ["network", "nodes have still to meet (screen, retest)"]
    assert following.split(maxsplit=1) == ["next", f"mnb fleet resume {folder}"]


def test_a_node_that_is_screened_after_a_meeting_has_all_meet_again(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    with_meetings(folder, lambda _: 10.0)
    found = FleetFolder.read(folder)
    network = msgspec.structs.replace(found, manifest=msgspec.structs.replace(found.manifest, network=True))
    assert meetings_left(network) == ()
    *before, screen, retest = network.ledger.entries
    held = msgspec.structs.replace(screen.what, nodes=NODES[1:])
    earlier = (*before, msgspec.structs.replace(screen, what=held), retest)
    without = msgspec.structs.replace(network, ledger=msgspec.structs.replace(network.ledger, entries=earlier))
    assert meetings_left(without) == ("screen", "retest")
    assert nodes_left(without) == NODES
    again = msgspec.structs.replace(network.ledger, entries=(*earlier, screen))
    assert meetings_left(msgspec.structs.replace(network, ledger=again)) == ("retest",), "of the new screen"

"""Which nodes are called slow, faulty or lost, and why: made-up fleets and hand-computed values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from milabench_ng.analysis.summary.summary import FailedLaunch, TestSummary
from milabench_ng.fleet import measuring
from milabench_ng.fleet.verdicts.columns import Column, Columns, columns_of
from milabench_ng.fleet.verdicts.judging import judge
from milabench_ng.fleet.verdicts.limits import Strictness, shares, usual_limits
from milabench_ng.fleet.verdicts.measured import Measured, kind_of, measured, middle
from milabench_ng.fleet.verdicts.screening import suspicious
from milabench_ng.fleet.verdicts.spread import Spread, spreads_of
from milabench_ng.fleet.verdicts.verdict import NodeVerdict
from tests.fleet.made_fleets import Rate, as_fast, fleet

RETESTS = {f"retest-{number}": ("n3", "n10", "n11", "n12") for number in (1, 2, 3)}


def slow_in(test: str, by: float, device: str = "") -> Rate:
    """``n3`` is slower in tests whose name begins so, on devices whose name does."""
    return lambda node, _, at, on: 1 - by if node == "n3" and at.startswith(test) and on.startswith(device) else 1.0


def verdict(made: Measured, node: str = "n3", strict: Strictness | None = None) -> NodeVerdict:
    found = judge(made, strict or Strictness())
    return next(one for one in found.nodes if one.node == node)


def test_what_sets_the_pace_says_on_which_part_of_the_node_a_test_depends() -> None:
    assert [kind_of(bound) for bound in ("gpu-compute", "gpu-memory", "cpu", "launch", "io", "links", None)] == [
        *("gpu", "gpu", "host", "host", "storage", "link", "host")
    ]


def test_a_fleet_of_which_nothing_is_known_yet_is_judged_too() -> None:
    assert judge(measured((), {}), Strictness()).nodes == ()


def test_samples_are_averaged_over_repeats_and_nodes_come_in_the_order_of_their_numbers() -> None:
    made = fleet(as_fast, 11, sessions={"retest-1": ["n2"]})
    assert made.nodes == ("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10")
    assert (made.screen.shape, made.retests.shape, made.sessions) == ((11, 5, 2), (1, 11, 5, 2), ("retest-1",))
    assert not np.isnan(made.screen).any()
    assert np.isnan(made.retests[0]).all(axis=(1, 2)).tolist() == [node != "n2" for node in made.nodes]


def test_medians_leave_out_what_was_not_measured() -> None:
    nan = math.nan
    values = np.array([[3.0, nan, 1.0, 2.0], [nan, nan, nan, nan], [nan, 4.0, 1.0, nan]])
    assert middle(values, 1).tolist()[::2] == [2.0, 2.5]
    assert math.isnan(middle(values, 1)[1])


def test_each_question_has_a_column_and_is_answered_relative_to_the_fleet() -> None:
    """Of 3 GPU-bound tests, the node is 10 % slow in one: 0 in the median of all, -10 % beside the two others."""
    found = columns_of(fleet(slow_in("a", 0.1)))
    assert [(one.scope, one.kind, one.test, one.device) for one in found.columns] == [
        ("all", "gpu", None, None),
        ("all", "host", None, None),
        *(("test", "gpu", test, None) for test in "abc"),
        *(("test", "host", test, None) for test in "de"),
        *(("device", "gpu", None, device) for device in "01"),
    ]
    answers = found.screen[3]
    assert answers[2] == pytest.approx(math.log(0.9), abs=0.004)
    beside_a = [3, 4]  # the median of `a` and the third
    assert answers[beside_a] == pytest.approx([-math.log(0.9) / 2] * 2, abs=0.006)
    assert np.delete(answers, [2, *beside_a]) == pytest.approx(np.zeros(6), abs=0.006)


def test_a_slow_device_is_seen_beside_the_others_of_its_node() -> None:
    found = columns_of(fleet(slow_in("", 0.2, device="1")))
    assert found.screen[3, -1] == pytest.approx(math.log(0.8), abs=0.006)


def test_devices_that_no_node_used_side_by_side_are_no_question() -> None:
    made = fleet(as_fast)
    alone = made.screen.copy()
    alone[::2, :, 0] = alone[1::2, :, 1] = np.nan
    one_each = replace(made, screen=alone)
    assert {one.scope for one in columns_of(one_each).columns} == {"all", "test"}
    assert {one.verdict for one in judge(one_each).nodes} == {"pass"}


def test_a_test_that_is_alone_of_its_kind_is_the_question_of_all() -> None:
    made = fleet(as_fast)
    alone = Measured(
        nodes=made.nodes,
        tests=made.tests[:4],
        kinds=made.kinds[:4],
        devices=made.devices,
        screen=made.screen[:, :4],
        retests=made.retests[:, :, :4],
    )
    assert columns_of(alone).columns[1] == Column(scope="all", kind="host", test="d")


@pytest.mark.parametrize(
    ("test", "device", "cause"),
    [
        ("", "", Column(scope="all", kind="gpu")),
        ("a", "", Column(scope="test", kind="gpu", test="a")),
        ("", "1", Column(scope="device", kind="gpu", device="1")),
    ],
)
def test_a_slow_node_is_suspicious_and_its_retests_prove_it(test: str, device: str, cause: Column) -> None:
    rate = slow_in(test, 0.1, device)
    screened = suspicious(fleet(rate))
    assert [one.node for one in screened.suspicious] == ["n3"]
    assert cause in screened.suspicious[0].columns
    assert len(screened.controls) == 3
    others = suspicious(fleet(rate), tried=screened.controls).controls
    assert (len(others), set(others) & set(screened.controls)) == (3, set())
    once = verdict(fleet(rate))
    assert (once.verdict, once.why) == ("inconclusive", "suspicious, and not retested")
    found = verdict(fleet(rate, sessions=RETESTS))
    assert (found.verdict, found.retests) == ("slow", 3)
    assert cause in (found.cause, *found.also)
    assert found.cause is not None
    assert found.cause.scope == cause.scope
    assert found.ratio is not None
    assert found.ratio.low < 0.9 < found.ratio.high < 0.97


def test_what_the_screen_showed_by_chance_passes_by_its_retests() -> None:
    made = fleet(lambda node, session, *_: 0.9 if node == "n3" and session == "screen" else 1.0, sessions=RETESTS)
    assert suspicious(made).suspicious
    assert verdict(made).verdict == "pass"


def test_what_is_slower_for_all_nodes_since_the_screen_makes_none_slow() -> None:
    """The room is hotter: the controls are as much slower as the suspicious node."""
    made = fleet(
        lambda node, session, *_: 0.95 if session != "screen" or node == "n3" else 1.0,
        sessions=RETESTS,
    )
    assert verdict(made).verdict == "pass"
    lonely = dict.fromkeys(RETESTS, ("n3",))
    without = fleet(lambda node, session, *_: 0.9 if session != "screen" or node == "n3" else 1.0, sessions=lonely)
    assert verdict(without).verdict == "slow"


def test_a_node_near_the_margin_is_not_decided() -> None:
    found = verdict(fleet(slow_in("", 0.031), sessions=RETESTS))
    assert (found.verdict, found.why) == ("inconclusive", "slower than the margin in the retests, but not certainly")


def test_failures_have_to_come_again_to_make_a_node_faulty() -> None:
    screen = {"n3": {"screen": ("a",)}}
    again = {"n3": {"screen": ("a",), "retest-2": ("a", "b")}}
    assert [one.failed for one in suspicious(fleet(as_fast, failed=screen)).suspicious] == [("a",)]
    assert verdict(fleet(as_fast, failed=screen)).verdict == "inconclusive"
    assert verdict(fleet(as_fast, failed=screen, sessions=RETESTS)).verdict == "pass"
    found = verdict(fleet(as_fast, failed=again, sessions=RETESTS))
    assert (found.verdict, found.failed) == ("faulty", ("a", "b"))


def test_a_node_that_computed_something_wrong_is_faulty_whatever_its_retests_say() -> None:
    failed = fleet(as_fast, failed={"n3": {"screen": ("a",)}}, sessions=RETESTS)
    assert verdict(failed).verdict == "pass"
    found = verdict(replace(failed, wrong={"n3": ("a",)}))
    assert (found.verdict, found.failed) == ("faulty", ("a",))
    assert found.why == "it computed something wrong, which no sound retest excuses"


def test_wrong_results_are_counted_among_the_failures_of_a_test() -> None:
    failed = tuple(FailedLaunch(job_id="0.0", cause=cause) for cause in ("mismatch", "exception"))
    found = measuring._test(TestSummary(n=3, failures=2, failed=failed))
    assert (found.failures, found.mismatches) == (2, 1)


def test_a_lost_node_has_its_reason_and_the_others_are_judged() -> None:
    found = judge(fleet(as_fast, lost={"n3": "no route to host"}))
    assert (found.count("lost"), found.count("pass"), found.exit_code) == (1, 29, 1)
    assert next(one.why for one in found.nodes if one.verdict == "lost") == "no route to host"


def test_exit_codes_say_whether_all_pass_one_does_not_or_one_is_undecided() -> None:
    assert judge(fleet(as_fast)).exit_code == 0
    assert judge(fleet(slow_in("", 0.1), sessions=RETESTS)).exit_code == 1
    assert judge(fleet(slow_in("", 0.1))).exit_code == 3


def test_of_three_nodes_none_is_judged() -> None:
    found = judge(fleet(slow_in("", 0.2), 3))
    assert {one.verdict for one in found.nodes} == {"inconclusive"}
    assert {one.ratio for one in found.nodes} == {None}, "not one of a device to the others of its node"
    assert found.expected_false_alarms == 0


def test_a_fleet_that_would_not_show_a_node_half_as_fast_clears_nobody() -> None:
    """Four nodes have a degree of freedom; of forty that differ by half, none stands out."""
    of_four = {"n0": 1.0, "n1": 1.01, "n2": 0.99, "n3": 0.76}
    four = judge(fleet(lambda node, *_: of_four[node], 4))
    assert {one.verdict for one in four.nodes} == {"inconclusive"}
    assert four.nodes[3].ratio is not None
    assert four.nodes[3].ratio.value == pytest.approx(0.764, abs=0.01)
    wild = judge(fleet(lambda node, *_: math.exp(math.sin(int(node[1:]))), 40))
    assert {one.verdict for one in wild.nodes} == {"inconclusive"}
    assert {one.verdict for one in judge(fleet(as_fast, 8)).nodes} == {"pass"}


def test_a_node_that_shares_no_test_with_enough_others_is_not_decided() -> None:
    made = fleet(as_fast, 10)
    alone = np.full((10, 1, 2), np.nan)
    alone[3], made.screen[3] = 0.0, np.nan
    found = judge(
        replace(
            made,
            tests=(*made.tests, "f"),
            kinds=(*made.kinds, "host"),
            screen=np.concatenate([made.screen, alone], axis=1),
            retests=np.empty((0, 10, 6, 2)),
        )
    )
    assert [one.node for one in found.nodes if one.verdict == "inconclusive"] == ["n3"]


def test_a_fleet_whose_healthy_nodes_differ_a_lot_needs_more_to_call_one_slow() -> None:
    def lottery(node: str, *_: str) -> float:
        return 0.9 if node == "n3" else 1 + 0.03 * math.sin(int(node[1:]))

    assert verdict(fleet(lottery, sessions=RETESTS)).verdict != "slow"


def test_the_shares_of_all_error_add_up_to_one() -> None:
    columns = columns_of(fleet(as_fast)).columns
    assert sum(shares(columns)) == pytest.approx(1)
    assert sum(shares(columns[2:])) == pytest.approx(1)


def test_the_expected_false_alarms_are_the_tail_of_the_healthy_nodes() -> None:
    """Nodes of 1 % and sessions that differ by nothing: 1,000 nodes times the normal tail at the limit."""
    spread = Spread(nodes=1000, centre=0.0, total=0.01, df=1e9, session=1e-9, session_df=1e9)
    (limit,) = usual_limits([Column(scope="all", kind="gpu")], [spread], Strictness(margin=0.001, false_alarms=0.01))
    tail = 1000 * math.erfc(-limit.retest / 0.01 / math.sqrt(2)) / 2
    assert limit.false_alarms() == pytest.approx(tail, rel=0.2)
    assert tail == pytest.approx(0.01, rel=0.1)
    assert limit.found(np.array([2 * limit.retest])) == pytest.approx([1])


def test_the_spread_is_that_of_the_healthy_nodes() -> None:
    healthy = spreads_of(columns_of(fleet(as_fast)))[0]
    one_slow = spreads_of(columns_of(fleet(slow_in("", 0.5))))[0]
    assert one_slow.total == pytest.approx(healthy.total, rel=0.2)


def test_what_changes_for_all_nodes_of_a_session_is_no_spread_between_sessions() -> None:
    """Two nodes, two sessions: by the means of both, each is left 0.005 off, with one degree of freedom."""
    column = Column(scope="test", kind="host", test="d")
    for retests, squares, df in (
        ([[0.0, -0.1], [0.5, 0.38]], 4 * 0.005**2, 1),
        ([[0.0, -0.1], [0.5, 0.4], [-0.2, -0.3]], 0.0, 2),
        ([[0.0, -0.1, math.nan], [0.5, 0.4, 0.7]], 0.0, 1),  # one session of a node has no other to differ from
        ([[0.0, -0.1, 0.2], [0.5, 0.4, math.nan], [0.1, 0.0, 0.3]], 0.0, 3),  # a retest was lost
    ):
        values = np.array(retests)[:, :, None]
        found = Columns(columns=(column,), screen=np.array([[-0.01], [0.0], [0.01]]), retests=values)
        (spread,) = spreads_of(found)
        declared = 0.014826 / math.sqrt(2)
        assert spread.session_df == 10 + df
        assert spread.session == pytest.approx(math.sqrt((squares + 10 * declared**2) / (10 + df)), rel=1e-6)


def test_a_busier_machine_in_some_retests_hides_no_slow_node() -> None:
    """All nodes of a session are slower together, as its controls show."""
    shared = {"retest-1": 0.85, "retest-2": 1.0, "retest-3": 0.95}
    slow = slow_in("", 0.1)
    made = fleet(lambda node, session, *of: slow(node, session, *of) * shared.get(session, 1.0), sessions=RETESTS)
    assert verdict(made).verdict == "slow"


def test_retests_that_differ_a_lot_clear_nobody_of_the_suspicion_of_the_screen() -> None:
    of_n3 = {"screen": 0.9, "retest-1": 0.6, "retest-2": 1.1, "retest-3": 1.0}
    made = fleet(lambda node, session, *_: of_n3[session] if node == "n3" else 1.0, sessions=RETESTS)
    assert [one.node for one in suspicious(made).suspicious] == ["n3"]
    assert verdict(made).verdict == "inconclusive"

"""What repeats, retests and tested nodes find, before anything is measured."""

from __future__ import annotations

import re

import msgspec
import pytest

from milabench_ng.cli import call
from milabench_ng.fleet.verdicts.planning import Wanted, accepted_with, plan, smallest_found

FLEET = Wanted(nodes=1000, kinds={"gpu": 7, "host": 11}, hours_per_repeat=0.15)


def test_the_risk_of_missing_all_slow_nodes_is_that_of_drawing_none_or_missing_those_drawn() -> None:
    """4 nodes, 2 slow, 2 tested: none drawn in 1 of 6, one in 4 of 6, both in 1 of 6."""
    assert accepted_with(4, 2, 2, 0.0) == pytest.approx(1 / 6)
    assert accepted_with(4, 2, 2, 0.1) == pytest.approx((1 + 4 * 0.1 + 0.01) / 6)
    assert accepted_with(4, 2, 4, 0.1) == pytest.approx(0.01)
    assert accepted_with(4, 0, 4, 0.1) == 1


def test_more_repeats_and_more_retests_miss_less_and_cost_more() -> None:
    by_effort = {(one.repeats, one.retests): one for one in plan(FLEET).efforts}
    for (repeats, retests), one in by_effort.items():
        for more in ((repeats, retests + 1), (2 * repeats + (repeats == 1), retests)):
            if more in by_effort:
                assert by_effort[more].missed <= one.missed
                assert by_effort[more].missed_in_one <= one.missed_in_one
                assert by_effort[more].node_hours > one.node_hours
        assert one.false_alarms <= 0.01


def test_the_cheapest_that_keeps_the_risk_is_chosen() -> None:
    made = plan(FLEET)
    assert made.cheapest is not None
    assert max(made.cheapest.missed, made.cheapest.missed_in_one) <= 0.01
    cheaper = [one for one in made.efforts if one.node_hours < made.cheapest.node_hours]
    assert all(max(one.missed, one.missed_in_one) > 0.01 for one in cheaper)


def test_the_hours_are_those_of_screen_retests_and_controls() -> None:
    """1,000 nodes, 20 retested for nothing and 10 controls, twice: 1,060 sessions of one repeat."""
    first = plan(FLEET).efforts[0]
    assert (first.repeats, first.retests) == (1, 2)
    assert first.node_hours == pytest.approx(1060 * 0.15)


def test_the_command_prints_what_to_choose(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["fleet", "plan", "--nodes", "512", "--slow", "5%", "--risk", "1%"]) == 0
    printed = capsys.readouterr().out
    assert "choose        --repeat" in printed
    assert "512 nodes of 8 GPUs" in printed
    assert call(["fleet", "plan", "--nodes", "8", "--slow", "3.1%", "--format", "csv"]) == 0
    told = capsys.readouterr()
    assert "missed, slow in all tests" in told.out.splitlines()[0]
    assert "none of these is within the risk. With a risk of 1%, a slow node is found from --slow " in told.err


def test_the_smallest_slowness_is_the_one_from_which_the_risk_is_kept() -> None:
    smallest = smallest_found(FLEET)
    assert smallest is not None
    assert smallest == plan(FLEET).smallest
    for slow, kept in ((smallest, True), (smallest - 0.001, False)):
        most = plan(msgspec.structs.replace(FLEET, slow=slow)).efforts[-1]
        assert (max(most.missed, most.missed_in_one) <= FLEET.risk) is kept


def test_a_slowness_that_the_margin_allows_is_refused_with_the_smallest_that_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["fleet", "plan", "--nodes", "16", "--slow", "3%"]) == 2
    told = capsys.readouterr().err
    assert "a node may be 3% slower (--margin)" in told
    assert "nothing is sought. With a risk of 1%, a slow node is found from --slow " in told


@pytest.mark.parametrize("risk", ["1%", "90%"])
def test_too_few_nodes_are_told_how_many_it_takes(risk: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of four, no risk finds a node, however slow it is."""
    asked = ["fleet", "plan", "--slow", "50%", "--risk", risk, "--nodes"]
    assert call([*asked, "4"]) == 0
    told = capsys.readouterr().out
    found = re.search(r"4 nodes are too few to find any slow one with a risk of \d+%. Try --nodes (\d+)", told)
    assert found is not None
    assert call([*asked, found[1]]) == 0
    assert "too few" not in capsys.readouterr().out


def test_what_is_slow_in_the_only_test_is_slow_in_all() -> None:
    for kinds in ({"gpu": 1}, {"gpu": 1, "host": 11}):
        (*_, most) = plan(msgspec.structs.replace(FLEET, kinds=kinds, slow=0.1)).efforts
        assert most.missed_in_one == most.missed < 0.01


def test_a_fleet_without_a_slow_node_is_no_question(capsys: pytest.CaptureFixture[str]) -> None:
    """1% of 16 nodes are none: accepting a fleet without slow nodes is no risk."""
    assert Wanted(nodes=16, kinds={"gpu": 7}, hours_per_repeat=1.0).slow_nodes == 1
    assert call(["fleet", "plan", "--nodes", "16"]) == 0
    assert "a fleet in which 1 of 16 nodes is 5% slow in all these tests" in capsys.readouterr().out

"""A bid that shares no work with the others is set aside: it does not take the tests out of their ranking."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import test_ranking
from test_money import WEIGHTS, node

from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.present.render.tender_facts import tender_facts
from milabench_ng.tender.same_work import set_aside
from milabench_ng.tender.tender import Tender


def of_model(model: str, suite: str = "standard") -> Summary:
    made = node(100.0, 100.0, 2)
    return msgspec.structs.replace(made, suite=suite, models=dict.fromkeys(made.models or ("0", "1"), model))


WHOLE, CUT, OTHER_CUT = of_model("H200"), of_model("H200 MIG 7g.141gb"), of_model("H200 MIG 1g.18gb")


def tender(folder: Path, **bids: Summary) -> Tender:
    return test_ranking.tender(folder, {"base": WHOLE, **bids}, WEIGHTS)


def test_gpus_cut_into_instances_leave_the_others_their_tests(tmp_path: Path) -> None:
    made = tender(tmp_path, straw=CUT, a=WHOLE, b=WHOLE)
    assert len(made.tests) == made.of == 2
    assert {row.name: row.rank for row in made.rows} == {"a": 1, "b": 1}
    assert made.exit_code == 1
    told = {fact.text for fact in tender_facts(made) if fact.name == "refused"}
    assert told == {
        "straw: excluded: its GPUs are MIG 7g, but those of most bids are whole, so no test is comparable",
    }


def test_a_bid_of_another_suite_leaves_the_others_theirs(tmp_path: Path) -> None:
    made = tender(tmp_path, straw=of_model("H200", "standart"), a=WHOLE, b=WHOLE)
    assert made.refused == {"straw": "excluded: it ran standart, but most bids ran standard"}
    assert {row.name: row.rank for row in made.rows} == {"a": 1, "b": 1}


def test_the_reference_decides_between_equally_many_bids(tmp_path: Path) -> None:
    why = "excluded: it ran standart, but the reference, which decides between equally many bids, ran standard"
    assert tender(tmp_path, straw=of_model("H200", "standart"), a=WHOLE).refused == {"straw": why}


@pytest.mark.parametrize(
    ("bids", "aside"),
    [
        ({"a": WHOLE, "b": WHOLE}, []),
        ({"a": CUT, "b": CUT}, []),
        ({"a": WHOLE, "b": CUT, "c": CUT}, ["a"]),
        ({"a": WHOLE, "b": CUT}, ["b"]),  # as many of each: the reference decides
        ({"a": OTHER_CUT, "b": CUT}, []),  # nor does the reference
        ({"a": WHOLE, "b": CUT, "c": OTHER_CUT}, ["b", "c"]),
    ],
)
def test_most_bids_say_what_is_usual(bids: dict[str, Summary], aside: list[str]) -> None:
    assert list(set_aside(bids, WHOLE)) == aside

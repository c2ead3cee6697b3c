"""What a record leaves out of its losses and gradient norms, and what shows that nothing was learned."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from parts.trace_bands import build
from tampering import changing
from test_traces import first_step, of_tenants, seen
from test_traces import folder as written

from milabench_ng.analysis.launch.traces import Compared, Traced, compare
from milabench_ng.analysis.summary.folder import load


def test_a_rank_that_skipped_a_step_does_not_hide_what_another_computed() -> None:
    trace = of_tenants((2.0, 10.0), (2.0, 10.0), precision="half_master")
    both = first_step(2.0, None, precision="half_master", skipped={"0/0": 1})
    norms = (*both.gradient_norms, ("1/1", "1", 99.0))
    found = compare(msgspec.structs.replace(both, gradient_norms=norms), trace, "k")
    assert [mark.text for mark in found.deviations] == [
        "outside the reference: gradient norm 99 at step 1, expected 10 +- 0.5"
    ]


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_what_is_left_out_of_a_record_is_a_mark(precision: str) -> None:
    trace = of_tenants((2.0, 10.0), (2.0, 10.0), precision=precision)
    whole = first_step(2.0, 10.0, precision=precision, steps={"0/0": 1}, skipped={"0/0": 1})
    assert compare(whole, trace, "k") == Compared(strength="strong")
    without = msgspec.structs.replace(whole, gradient_norms=())
    assert [mark.text for mark in compare(without, trace, "k").deviations] == [
        "the record has no gradient norm at step 1"
    ]
    empty = msgspec.structs.replace(without, losses=())
    assert [mark.text for mark in compare(empty, trace, "k").deviations] == [
        "the record has no loss at step 1",
        "the record has no gradient norm at step 1",
    ]
    unfinished = msgspec.structs.replace(empty, steps={"0/0": 0})
    assert compare(unfinished, trace, "k").deviations == ()


def test_what_one_rank_leaves_out_is_a_mark_where_the_other_has_it() -> None:
    trace = of_tenants((2.0, 10.0), (2.0, 10.0))
    found = compare(first_step(2.0, 10.0, steps={"0/0": 100, "1/1": 100}), trace, "k")
    assert {mark.text for mark in found.deviations} == {
        "the record has no loss at step 1",
        "the record has no gradient norm at step 1",
    }


def course(losses: dict[str, float | None], norms: dict[str, float | None]) -> Traced:
    at = [tuple(("0/0", step, number) for step, number in each.items()) for each in (losses, norms)]
    return msgspec.structs.replace(seen(None), losses=at[0], gradient_norms=at[1])


def test_a_launch_that_learned_nothing_is_marked_also_where_bands_are_wide_or_missing() -> None:
    known = [course({"1": 0.5, "10": 0.49}, {"1": 0.25}), course({"1": 0.5, "10": 0.49}, {"1": 0.25})]
    trace = build("try", [(each, "k") for each in known], ()).tests["try.net"]
    assert compare(course({"1": 0.5, "10": 0.499}, {"1": 0.25, "2": 0.1}), trace, "k").deviations == ()
    found = compare(course({"1": 0.5, "10": 0.5}, {"1": 0.25, "2": 0.0}), trace, "k").deviations
    assert [mark.text for mark in found] == [
        "the model did not learn: the gradient norm at step 2 is 0",
        "the model did not learn: the loss at all recorded steps is 0.5",
    ]


def test_a_gradient_of_nothing_is_right_where_the_test_has_learned_all() -> None:
    """As `scaling`, which sees one batch over and over."""
    known = course({"1": 6.9, "10": 0.0}, {"1": 1.8, "10": 0.0})
    trace = build("try", [(known, "k")] * 2, ()).tests["try.net"]
    over = course({"1": 6.9, "10": 0.0, "100": 1e-9}, {"1": 1.8, "10": 0.0, "100": 0.0})
    assert compare(over, trace, "k").deviations == ()


@pytest.mark.parametrize(
    ("losses", "norms", "marked"),
    [
        ({"1": 2.0}, {"1": 5.0}, set()),
        ({"1": 2.0}, {}, {"the record has no gradient norm at step 1"}),
        ({}, {}, {"the record has no loss at step 1", "the record has no gradient norm at step 1"}),
        ({"1": 2.0}, {"1": 5.0, "2": 0.0}, {"the model did not learn: the gradient norm at step 2 is 0"}),
    ],
)
def test_a_report_marks_records_with_less(
    losses: dict[str, float],
    norms: dict[str, float],
    marked: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"batch_size": 64, "precision": "fp32"}
    whole = msgspec.structs.replace(of_tenants((2.0, 5.0), (2.0, 5.0)), arguments=options)
    place = written(tmp_path / "results", 2.0)
    for path in place.glob("try.net.*"):
        with changing(path) as content:
            content["mnb"]["ranks"][0] |= {"losses": losses, "gradient_norms": norms}
    monkeypatch.setattr("milabench_ng.analysis.summary.folder.load_traces", lambda _suite: {"try.net": whole})
    assert {mark.text for mark in load(place).tests["try.net"].marks} == marked


def test_a_digest_that_the_same_software_left_is_asked_for() -> None:
    trace = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ()).tests["try.net"]
    whole = msgspec.structs.replace(seen(2.0), steps={"0/0": 100})
    assert compare(whole, trace, "k").deviations == ()
    without = msgspec.structs.replace(whole, digests={})
    assert [mark.text for mark in compare(without, trace, "k").deviations] == [
        "the record has no digest of the parameters at step 100"
    ]
    assert compare(without, trace, "other").deviations == ()
    assert compare(msgspec.structs.replace(without, steps={"0/0": 99}), trace, "k").deviations == ()

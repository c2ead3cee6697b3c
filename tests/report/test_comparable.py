"""Empty is not equal: what one side does not record, and work that was another, does not count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import rows
from test_money import WEIGHTS, node

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.scale import Scale, shipped_scale
from milabench_ng.analysis.scoring.weights import spread_unplanned
from milabench_ng.analysis.summary.comparable import differences
from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.analysis.summary.summary import Departure, LaunchFlag, Summary
from milabench_ng.present.render.tables import other_tables
from milabench_ng.records.marks import Mark
from milabench_ng.records.work import DataRead
from milabench_ng.report.reporting import build_report

OPTIONS = {"batch_size": 64, "workers": 8, "max_seconds": 600.0}


def changed(**more: Any) -> Summary:
    """Both tests with options, the second, which the GPU bounds, with something else than the first node has."""
    made = node(100.0, 100.0)
    tests = {label: rows.changed(row, options=OPTIONS) for label, row in made.tests.items()}
    tests["standard.convnet"] = rows.changed(tests["standard.convnet"], **more)
    return msgspec.structs.replace(made, tests=tests)


def against(base: Summary, **ours: Any) -> Comparison:
    return build_report(changed(**ours), "run", scale=Scale(weights=WEIGHTS), baselines=[("base", base)]).comparisons[0]


def data(kind: str) -> tuple[DataRead, ...]:
    name = "imagenet-classic" if kind == "classic" else "imagenet"
    return (DataRead(name=name, kind=kind, scale=1.0, cache="cold"),)


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ({}, {"precision": ()}, "precision, data and options fp32 vs. not recorded"),
        ({}, {"options": {}}, "options recorded vs. not recorded"),
        ({}, {"options": OPTIONS | {"image_size": 224}}, "option image_size not recorded vs. 224"),
        ({"bound": "cpu"}, {"options": OPTIONS | {"workers": 1}}, "option workers 8 vs. 1"),
        (
            {"data": data("twin")},
            {"data": data("classic"), "bound": "cpu"},
            "its dataset, which is the bottleneck, has another kind: synthetic vs. classic",
        ),
        (
            {},
            {"departures": (Departure(what="sampled in Python", decides=True),)},
            "different work: sampled in Python",
        ),
        ({"devices": 8}, {"devices": 1, "company": {}}, "other devices the same test vs. nothing"),
        ({"company": {"h2d": 2.0}}, {"company": {}}, "other devices h2d vs. nothing"),
    ],
)
def test_a_row_of_unknown_or_other_work_is_shown_and_does_not_count(
    ours: dict[str, Any], theirs: dict[str, Any], why: str
) -> None:
    found = against(changed(**theirs), **ours)
    assert found.reasons == {"standard.convnet": why}
    assert (found.status, found.counted, found.tests) == ("partial", ("standard.vae",), 1)
    at = found.rows["standard.convnet"]
    assert (at.perf_ratio, at.set_aside, at.suppressed) == (1.0, why, "")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"options": {}, "precision": ()}, {"options": {}, "precision": ()}),  # nothing is known of either
        ({}, {"options": {key: value for key, value in OPTIONS.items() if key == "batch_size"}}),
        ({}, {"options": OPTIONS | {"workers": 1}}),  # the GPU sets the pace
        ({"devices": 8}, {"devices": 1}),  # all that there are
        ({"devices": 1, "company": {}}, {"devices": 1}),
        ({"company": {"h2d": 2.0}}, {"company": {"h2d": 3.0}}),
        ({"data": data("twin")}, {"data": data("classic")}),
        ({"data": data("twin"), "bound": "cpu"}, {"data": data("real")}),
        ({}, {"departures": (Departure(what="fetching was not timed", decides=False),)}),
        (
            {"departures": (Departure(what="sampled in Python", decides=True),)},
            {"departures": (Departure(what="sampled in Python", decides=True),)},
        ),
    ],
)
def test_what_does_not_decide_the_work_counts(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    found = against(changed(**theirs), **ours)
    assert (found.reasons, found.status) == ({}, "complete")
    assert found.ratio == pytest.approx(1.0, rel=1e-12)


def test_a_departure_that_does_not_decide_is_listed() -> None:
    base = changed(departures=(Departure(what="fetching was not timed", decides=False),))
    (found,) = differences(changed(), base)
    assert (found.what, found.run, found.baseline) == ("work", "as the test is today", "fetching was not timed")
    assert (found.tests, found.ratio) == (("standard.convnet",), "counted")


THROTTLED = Mark(kind="throttled", device="0", what="hw_thermal", value=0.4, limit=0.005)
SHORT = Mark(kind="window shortened", value=1.0, limit=9.0)


def test_marks_of_the_baseline_are_told() -> None:
    base = changed(marks=(THROTTLED, SHORT))
    found = against(base, marks=(SHORT,))
    (told,) = found.differences
    assert (told.what, told.run, told.baseline) == (
        "comparability warnings",
        "window shortened",
        "throttled (hw_thermal), window shortened",
    )
    assert (told.tests, told.ratio, found.status) == (("standard.convnet",), "counted", "complete")
    assert found.indicative == (
        (
            "comparability warning of the baseline: GPU clocks throttled (hw_thermal) for 40% of the time "
            "(limit 0.5%) (at worst; 1 of 2 tests; device 0)"
        ),
        "comparability warning of the baseline: averaging window shortened to 1 s (at worst; 1 of 2 tests)",
    )


def test_a_mark_that_both_have_leaves_the_ratio_an_indication() -> None:
    partial = (Mark(kind="partly isolated"),)
    found = against(changed(marks=partial), marks=partial)
    assert found.differences == ()
    assert found.indicative == ("comparability warning of the baseline: isolation partial (1 of 2 tests)",)


def test_parts_of_caches_on_one_side_are_another_isolation() -> None:
    found = against(changed(), marks=(Mark(kind="caches divided"),))
    (told,) = found.differences
    assert (told.text, told.ratio) == ("last-level caches divided vs. shared", "counted")


def test_marks_of_the_run_stand_in_its_own_report() -> None:
    found = against(changed(), marks=(SHORT,))
    assert (found.differences, found.indicative) == ((), ())


def test_flags_and_failures_of_the_baseline_are_told() -> None:
    flag = LaunchFlag(job_id="0.0", kind="stall", detail="1 s")
    found = against(changed(flags=(flag,), failures=1), launches={"0.0": 1.0})
    assert [(one.what, one.run, one.baseline) for one in found.differences] == [
        ("anomalies", "none", "stall"),
        ("failures", "0 of 5", "1 of 5"),
    ]
    assert found.indicative == ()
    assert against(changed(flags=(flag,))).differences == (), "a stored baseline has no single launches"


OTHER_WORK = {"standard.vae", "standard.reso", "standard.minigrid", "standard.atari", "standard.recom"}
NOISE = {"standard.loader", "standard.fast_style", "standard.dcgan"}


@pytest.mark.parametrize("name", ["v100", "rtx8000"])
def test_every_row_of_2020_says_what_it_ran(name: str) -> None:
    known = load_baseline(name).tests
    assert all(row.work.precision and row.work.options and row.work.bound for row in known.values())
    assert {label for label, row in known.items() if any(each.decides for each in row.departures)} == OTHER_WORK
    assert {
        label
        for label, row in known.items()
        if row.work.bound == "cpu" and "classic" in [at.kind for at in row.work.data]
    } == (NOISE)
    assert known["standard.reso"].work.options["learning_rate"] == 0.1
    assert known["standard.vae"].work.options["workers"] == 1


@pytest.mark.parametrize("name", ["v100", "rtx8000"])
def test_the_ratio_to_2020_is_over_the_same_work_and_says_what_it_leaves_out(name: str) -> None:
    run = load_baseline("h200")
    report = build_report(
        run, "run", scale=Scale(weights=shipped_scale("standard").weights), baselines=[(name, load_baseline(name))]
    )
    (found,) = report.comparisons
    assert set(found.reasons) >= (OTHER_WORK | NOISE) & run.tests.keys()
    assert set(found.counted) <= run.tests.keys() - OTHER_WORK - NOISE
    other = {label for label, row in run.tests.items() if any(each.decides for each in row.departures)}
    assert set(found.reasons) >= other
    assert set(found.counted) >= {"standard.toy_reg", "standard.wlm", "standard.convnet"} - other
    assert set(found.counted) | set(found.reasons) == set(
        spread_unplanned(shipped_scale("standard").weights or {}, run.devices)
    )
    (left_out,) = [section for section in other_tables(report) if section.key == f"left-out-{name}"]
    told = {test: str(why) for tests, why in left_out.rows for test in str(tests).split(", ")}
    assert told["recom"].startswith("different work: negatives were drawn one by one in Python")
    assert "synthetic vs. classic" in told["loader"]
    assert left_out.notes == (f"{found.tests} of {found.of} weighted tests count",)
    assert len(told) == len(found.reasons)

"""Score, comparison and cost: every rule on numbers that are computed by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from rows import row_of

from milabench_ng.analysis.scoring.compare import compare
from milabench_ng.analysis.scoring.cost import cost
from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.scoring.scale import Scale
from milabench_ng.analysis.scoring.score import Score, score
from milabench_ng.analysis.scoring.scored import perf_adj, scored_tests
from milabench_ng.analysis.scoring.weights import find_weights, planned_weights, read_weights, spread_unplanned
from milabench_ng.analysis.summary.folder import load, load_baseline
from milabench_ng.analysis.summary.summary import Provenance, Stat, Summary, TestSummary
from milabench_ng.model.errors import InputError
from milabench_ng.report.reporting import ReportOptions, build_report, make_report

DATA = Path(__file__).parent.parent / "data" / "milarun2020"
HERE = Provenance(kind="measured", source="by hand", hardware="paper")


def row(mean: float, std: float = 0.0, n: int = 10, failures: int = 0, **more: Any) -> TestSummary:
    measured = Stat(n - failures, mean, mean, mean, std)
    more = {"unit": "images", "classic_factor": 1.0, "planned": n} | more
    return row_of(n=n, failures=failures, train=measured if n > failures else None, **more)


def summary(tests: dict[str, TestSummary], devices: int = 2, units: Any = "true", **more: Any) -> Summary:
    more = {"has_plan": True} | more
    return Summary(suite="s", units=units, devices=devices, provenance=HERE, tests=tests, **more)


def test_perf_adj() -> None:
    assert perf_adj(100, 10, 10, 2, penalize_variance=True) == 72.0  # (100 - 10) * 0.8
    assert perf_adj(100, 10, 10, 2, penalize_variance=False) == 80.0
    assert perf_adj(100, 150, 10, 0, penalize_variance=True) == 0.0  # never below 0
    assert perf_adj(100, 0, 10, 10, penalize_variance=True) == 0.0


def test_score_is_the_weighted_geometric_mean_in_classic_units() -> None:
    tests = {"s.a": row(200.0, std=100.0), "s.b": row(32.0, classic_factor=0.25), "s.unweighted": row(7.0)}
    made = score(summary(tests), {"s.a": 1.0, "s.b": 3.0})
    # (100^1 * 8^3)^(1/4)
    assert made.status == "complete"
    assert made.per_device == pytest.approx((100 * 8**3) ** 0.25, rel=1e-12)
    assert made.per_node == pytest.approx(2 * (100 * 8**3) ** 0.25, rel=1e-12)
    assert (made.tests, made.of, made.missing) == (2, 2, ())
    plain = score(summary(tests), {"s.a": 1.0, "s.b": 3.0}, penalize_variance=False)
    assert plain.per_device == pytest.approx((200 * 8**3) ** 0.25, rel=1e-12)


def test_classic_rows_are_shown_in_true_units_and_scored_in_classic_ones() -> None:
    tests = {"s.wlm": row(1456.0, classic_factor=1 / 35), "s.unknown": row(10.0, classic_factor=None)}
    known, unknown = scored_tests(summary(tests, units="classic"), None).values()
    assert known.perf == pytest.approx(50960.0, rel=1e-12)
    assert known.classic == pytest.approx(1456.0, rel=1e-12)
    assert (unknown.perf, unknown.classic) == (10.0, 10.0)


def test_a_test_that_always_failed_is_zero_and_never_one() -> None:
    made = score(summary({"s.a": row(100.0), "s.b": row(0.0, n=4, failures=4)}), {"s.a": 1, "s.b": 1})
    assert (made.status, made.per_device, made.per_node) == ("complete", 0.0, 0.0)
    assert cost(100.0, "node", made, 8).rpp is None


@pytest.mark.parametrize(
    "lacking",
    [{}, {"s.b": row(50.0, n=4, failures=1, missing=1)}, {"s.b": row(50.0, n=3, pending=1)}],
)
def test_a_missing_test_makes_the_score_invalid(lacking: dict[str, TestSummary]) -> None:
    made = score(summary({"s.a": row(100.0), **lacking}), {"s.a": 1, "s.b": 1})
    assert (made.status, made.per_device, made.per_node, made.missing) == ("invalid", None, None, ("s.b",))
    assert made.reasons == ("records are missing in 1 test",)


def test_a_missing_test_without_weight_makes_it_invalid_too() -> None:
    made = score(summary({"s.a": row(100.0), "s.c": row(0.0, n=1, failures=1, missing=1)}), {"s.a": 1})
    assert (made.status, made.missing) == ("invalid", ("s.c",))


def test_selected_tests_make_a_partial_score() -> None:
    made = score(summary({"s.a": row(100.0)}, omitted=("s.b", "s.c")), {"s.a": 1, "s.b": 1, "s.c": 2})
    assert (made.status, made.per_device, made.tests, made.of) == ("partial", pytest.approx(100.0, rel=1e-12), 1, 3)
    assert (made.missing, made.omitted) == ((), ("s.b", "s.c"))


def test_without_a_plan_a_score_of_ours_is_partial() -> None:
    assert score(summary({"s.a": row(100.0)}, has_plan=False), {"s.a": 1}).status == "partial"
    assert score(summary({"s.a": row(100.0)}, has_plan=False, units="classic"), {"s.a": 1}).status == "complete"


def test_what_the_node_is_too_small_for_has_no_weight() -> None:
    small = summary({"s.a": row(100.0)}, unplanned={"s.b": "it needs 2 devices, but the node has 1"})
    made = score(small, {"s.a": 1, "s.b": 1})
    assert (made.status, made.per_device, made.of, made.missing) == ("complete", pytest.approx(100.0, rel=1e-12), 1, ())
    assert planned_weights({"s.a": 1.0, "s.b": 5.0}, small) == {"s.a": 1.0}


def test_weight_of_unplanned_steps_goes_to_the_planned_ones() -> None:
    weights = {"s.a": 8.0, **{f"s.scaling.{k}": 2.0 for k in range(1, 9)}, "s.other.1": 1.0}
    assert spread_unplanned(weights, 8) == weights
    two = {"s.a": 8.0, "s.scaling.1": 8.0, "s.scaling.2": 8.0, "s.other.1": 1.0}
    assert spread_unplanned(weights, 2) == two
    three = spread_unplanned(weights, 3)
    assert three["s.scaling.1"] == three["s.scaling.3"] == pytest.approx(2 + 10 / 3, rel=1e-12)
    assert math.fsum(three.values()) == pytest.approx(math.fsum(weights.values()), rel=1e-12)
    assert "s.scaling.4" not in three


@pytest.mark.parametrize(("fail", "passed"), [(0, True), (1, True), (3, True), (4, False)])
def test_more_than_one_percent_beyond_chance_fails(fail: int, passed: bool) -> None:
    """If 1 % of launches fail, 3 of 100 or more do in 7.9 % of runs, 4 or more in 1.8 %."""
    rate = failure_rate(summary({"s.a": row(1.0, n=60), "s.b": row(1.0, n=40, failures=fail)}))
    assert (rate.rate, rate.passed) == (fail / 100, passed)


def test_compare_in_true_units() -> None:
    run = summary({"s.wlm": row(70_000.0, classic_factor=1 / 35), "s.b": row(50.0)})
    base = summary({"s.wlm": row(1000.0, classic_factor=None), "s.b": row(200.0, n=4, failures=2)}, 8, "classic")
    weights = {"s.wlm": 1.0, "s.b": 1.0}
    made = compare(run, base, "base", weights, score(run, weights))
    wlm, other = made.rows["s.wlm"], made.rows["s.b"]
    assert wlm.perf_base == pytest.approx(35_000.0, rel=1e-12)
    assert wlm.perf_ratio == pytest.approx(2.0, rel=1e-12)
    assert (other.perf_base, other.perf_ratio) == (200.0, pytest.approx(0.25, rel=1e-12))
    assert (other.perf_base_adj, other.perf_ratio_adj) == (100.0, 0.5)  # the baseline's failures are charged
    assert made.status == "complete"
    assert made.score == pytest.approx((1000 * 100) ** 0.5, rel=1e-12)
    assert made.ratio == pytest.approx(0.5**0.5, rel=1e-12)  # (2 * 0.25)^(1/2)
    assert made.charged_ratio == pytest.approx(1.0, rel=1e-12)  # (2 * 0.5)^(1/2)
    assert made.ratio_per_node == pytest.approx(0.25 * 0.5**0.5, rel=1e-12)


def test_ratio_over_common_tests_is_partial() -> None:
    run = summary({"s.a": row(30.0), "s.b": row(5.0)})
    base = summary({"s.a": row(10.0), "s.z": row(1.0)})
    weights = {"s.a": 1.0, "s.b": 1.0}
    made = compare(run, base, "base", weights, score(run, weights))
    assert (made.status, made.ratio, made.tests, made.of) == ("partial", pytest.approx(3.0, rel=1e-12), 1, 2)
    assert made.left_out == ("s.b",)
    alien = compare(run, summary({"t.a": row(1.0)}), "alien", weights, score(run, weights))
    assert (alien.status, alien.ratio, alien.score) == ("none", None, None)


def test_cost() -> None:
    made = Score(status="complete", per_device=50.0, per_node=400.0, devices=8, tests=1, of=1, missing=())
    assert cost(15000.0, "node", made, 8).rpp == 37.5
    assert cost(2000.0, "gpu", made, 8).rpp == 40.0
    assert cost(1.0, "node", None, 8).rpp is None
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="--price"):
            cost(bad, "node", made, 8)


def by_hand(penalty: bool, weights: dict[str, float]) -> float:
    published = json.loads((DATA / "v100.json").read_text())
    logs = [
        weight * math.log(published[label]["train"]["mean"] - penalty * published[label]["train"]["std"])
        for label, weight in weights.items()
    ]
    return math.exp(sum(logs) / sum(weights.values()))


@pytest.mark.parametrize("file", ["v100.json", "../../../baselines/v100.json"])
def test_the_v100_score_of_2020(file: str) -> None:
    """1054.8 was published with the rule of 2020, without the charge for spread."""
    weights = {
        label: entry["weight"] for label, entry in json.loads((DATA / "weights-standard.json").read_text()).items()
    }
    report = make_report(
        DATA / file, weights=DATA / "weights-standard.json", options=ReportOptions(penalize_variance=False)
    )
    assert report.score.status == "complete"
    assert round(report.score.per_device or 0, 1) == 1054.8
    assert report.score.per_device == pytest.approx(by_hand(False, weights), rel=1e-12)
    assert report.score.per_node == pytest.approx(8 * by_hand(False, weights), rel=1e-12)
    charged = make_report(DATA / file, weights=DATA / "weights-standard.json")
    assert charged.score.per_device == pytest.approx(by_hand(True, weights), rel=1e-12)
    assert round(charged.score.per_device or 0, 2) == 1026.56


def test_a_v100_node_without_recom_is_invalid_and_not_550() -> None:
    weights = read_weights(DATA / "weights-standard.json", "standard").weights
    whole = load(DATA / "v100.json")
    tests = {label: entry for label, entry in whole.tests.items() if label != "standard.recom"}
    report = build_report(summary(tests, 8, "classic", has_plan=False), "x", scale=Scale(weights=weights))
    assert (report.score.status, report.score.missing) == ("invalid", ("standard.recom",))
    assert report.exit_code == 1


@pytest.mark.parametrize("name", ["v100", "rtx8000"])
def test_shipped_baselines_are_the_published_figures(name: str) -> None:
    shipped, published = load_baseline(name), load(DATA / f"{name}.json")
    assert shipped.provenance.kind == "published"
    assert (shipped.devices, published.devices) == (8, 8)
    assert shipped.tests.keys() == published.tests.keys()
    for label, entry in published.tests.items():
        mine = shipped.tests[label]
        assert (mine.n, mine.train, mine.total, mine.pergpu) == (entry.n, entry.train, entry.total, entry.pergpu)
    assert load_baseline(f"baselines/{name}.json") == shipped


@pytest.mark.parametrize("suite", ["standard", "quick"])
def test_shipped_weights(suite: str) -> None:
    shipped = find_weights(suite)
    classic = read_weights(DATA / "weights-standard.json", "standard").weights
    renamed = {label.replace("standard", suite): value for label, value in classic.items()}
    assert shipped.weights.items() <= renamed.items()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ('{"s.a": 8}', "Expected {"),
        ('{"s.a": {"weight": -1}}', "at least 0"),
        ('{"s.a": {"weight": 1, "x": 2}}', "unknown key"),
        ('{"s.a": {"weight": 0}}', "no test has a weight"),
    ],
)
def test_bad_weights_are_bad_input(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "w.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_weights(tmp_path / "w.json", "s")
    assert find_weights("no-such-suite") is None


def test_an_unknown_baseline_is_bad_input() -> None:
    with pytest.raises(InputError, match="nothing: no such file or folder, and no shipped baseline"):
        load_baseline("nothing")

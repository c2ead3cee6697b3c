"""What bids are ranked by: failures, the same work, weights of the tender, sessions; by hand and by permutation."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
import tampering
from make_records import PER_GPU
from printing import text_of
from rows import changed
from test_money import WEIGHTS, node, row, with_options

from milabench_ng.analysis.scoring.compare import compare
from milabench_ng.analysis.scoring.other_machine import GPU_STD, HOST_STD, day_variance, machine_variance, predicted
from milabench_ng.analysis.scoring.scale import Scale
from milabench_ng.analysis.scoring.scored import scored_tests
from milabench_ng.analysis.scoring.weights import weights_over
from milabench_ng.analysis.statistics.intervals import Estimate, session_stat, t_quantile
from milabench_ng.analysis.summary.folder import encode_summary, load
from milabench_ng.analysis.summary.summary import Provenance, Summary, TestSummary
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import Scheme
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.tender_facts import tender_facts
from milabench_ng.present.render.tender_tables import tender_document
from milabench_ng.present.writers import write
from milabench_ng.report.reporting import build_report
from milabench_ng.tender.offers import compare_bids
from milabench_ng.tender.ranking import cheaper_by
from milabench_ng.tender.tender import Tender

SCALING = {"standard.vae": 1.0} | {f"standard.scaling.{count}": 1.0 for count in (1, 2, 4, 8)}
THREE = {"0": 1, "1": 1, "2": 2, "3": 2, "4": 3}
"""Sessions of five repeats."""


def tender(folder: Path, bids: Mapping[str, Summary], weights: Mapping[str, float], **more: Any) -> Tender:
    """The tender of nodes that cost 1000 each; the reference is the bid ``base``, or the first."""
    for name, one in bids.items():
        (folder / f"{name}.json").write_text(encode_summary(one))
    (folder / "w.json").write_text(json.dumps({label: {"weight": weight} for label, weight in weights.items()}))
    offers = {name: {"results": f"{name}.json", "price": 1000.0} for name in bids if name != "base"}
    file = folder / "bids.json"
    reference = "base.json" if "base" in bids else f"{next(iter(bids))}.json"
    file.write_text(json.dumps({"reference": reference, "bids": offers, "weights": "w.json"} | more))
    return compare_bids(file)


def ranks(made: Tender) -> dict[str, int | None]:
    return {at.name: at.rank for at in made.rows}


def with_tests(made: Summary, **changes: Any) -> Summary:
    tests = {label: changed(at, **changes) for label, at in made.tests.items()}
    return msgspec.structs.replace(made, tests=tests)


def test_a_bid_that_fails_beyond_the_limit_has_no_rank(tmp_path: Path) -> None:
    """Before, half of all repeats could fail, and it ranked first by what was left."""
    healthy, failing = node(100.0, 100.0), with_tests(node(200.0, 200.0), n=10, failures=5)
    made = tender(tmp_path, {"healthy": healthy, "other": node(90.0, 90.0), "failing": failing}, WEIGHTS)
    assert ranks(made)["failing"] is None
    row = next(at for at in made.rows if at.name == "failing")
    assert (row.ratio, row.pareto, row.why) == (None, False, "10 of 20 launches failed (limit 1%)")
    assert made.exit_code == 1
    text = text_of(write, tender_document(made), "table")
    assert "10 of 20 launches failed (limit 1%)" in " ".join(text.split())


def test_no_bid_ranks_behind_one_that_costs_more(tmp_path: Path) -> None:
    """c is known too badly to be told from a; before, it ranked first and b, which is cheaper, second."""
    loud = [-0.2, 0.0, 0.0, 0.0, 0.2]
    quiet = [-0.001, 0.0, 0.0, 0.0, 0.001]
    monthly = {str(index): 1 + index for index in range(5)}
    bids = {
        "a": spread(100.0, quiet, monthly), "b": spread(97.0, quiet, monthly), "c": spread(96.9, loud, monthly),
    }  # fmt: skip
    made = tender(tmp_path, bids, {"standard.convnet": 1.0})
    assert [at.name for at in made.rows] == ["a", "b", "c"]
    assert [at.rank for at in made.rows] == sorted(at.rank or 0 for at in made.rows)


@pytest.mark.parametrize(
    ("fail", "verdicts"), [(0, ("differs in these sessions",) * 2), (1, ("not judged", "not judged"))]
)
def test_a_node_that_fails_beyond_the_limit_is_not_called_better(fail: int, verdicts: tuple[str, str]) -> None:
    fast, usual = with_tests(node(110.0, 110.0), failures=fail), node(100.0, 100.0)
    up, down = (compare(run, base, "", WEIGHTS, None) for run, base in ((fast, usual), (usual, fast)))
    for found, verdict in ((up, verdicts[0]), (down, verdicts[1])):
        assert {found.effect.verdict, *(each.effect.verdict for each in found.rows.values())} == {verdict}
    if fail:
        assert up.effect.why == "the run: 2 of 10 launches failed (limit 1%)"
        assert down.effect.why.startswith("the baseline: 2 of 10")


def test_a_bid_of_other_work_wins_nothing(tmp_path: Path) -> None:
    """bf16 at batch 256 against the profile's work ranks nowhere, since no test is the same work."""
    other = with_options(node(100.0, 100.0))
    other = with_tests(other, options={"batch_size": 256}, precision=("bf16",))
    bids = {"base": with_options(node(100.0, 100.0)), "usual": with_options(node(100.0, 100.0)), "other": other}
    made = tender(tmp_path, bids, WEIGHTS)
    assert set(ranks(made).values()) == {None}
    assert made.why_unranked == "no weighted test is comparable across all bids and the reference"
    assert "option batch_size 64 vs. 256" in {one.why for one in made.other_work}
    assert {at.ratio for at in made.rows} == {None}


def test_ratios_are_over_the_tests_that_all_bids_share_with_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, that of a was over both tests and that of b, which had twice the reference's loaders, over vae alone."""

    monkeypatch.setattr("milabench_ng.tender.offers.own_bounds", lambda summary: summary)

    def fed(convnet: float, **workers: int) -> Summary:
        return with_options(node(100.0, convnet), bound="cpu", options={"batch_size": 64} | workers)

    bids = {"base": fed(100.0, workers=8), "a": fed(200.0), "b": fed(200.0, workers=16)}
    made = tender(tmp_path, bids, WEIGHTS)
    assert made.tests == ("standard.vae",)
    assert made.not_in_reference == ("standard.convnet",)
    assert [at.ratio for at in made.rows] == pytest.approx([1.0, 1.0])
    said = "1 of 2 weighted tests; not in the reference, or other work there: convnet"
    assert said in " ".join(text_of(write, tender_document(made), "table").split())


def scaling_node(devices: int, rate: float, sessions: Mapping[str, int] = THREE) -> Summary:
    """Its scaling loses 3 % with each doubling."""

    def measured(at: float, **more: Any) -> TestSummary:
        made = row(at, **more)
        return sessions_row(made, made.repeats, sessions)

    tests = {"standard.vae": measured(rate, devices=devices)}
    for count in (1, 2, 4, 8):
        if count <= devices:
            at = rate * 0.97 ** math.log2(count)
            tests[f"standard.scaling.{count}"] = measured(at, scheme=Scheme.PROGRESSION, devices=count)
    at = Provenance(kind="measured", source="by hand", hardware=f"{devices} x GPU")
    return Summary(suite="standard", units="true", devices=devices, provenance=at, has_plan=True, tests=tests)


def test_missing_steps_leave_their_weight_to_the_others() -> None:
    assert weights_over(SCALING, ["standard.vae", "standard.scaling.1", "standard.scaling.2"]) == {
        "standard.vae": 1.0, "standard.scaling.1": 2.0, "standard.scaling.2": 2.0,
    }  # fmt: skip
    assert weights_over(SCALING, ["standard.vae"]) == {"standard.vae": 1.0}


def test_two_devices_against_eight_are_symmetric() -> None:
    """Before, -0.018 or +0.049 in the log, by which bid came first."""
    small, large = (build_report(scaling_node(count, 100.0), "", scale=Scale(weights=SCALING)) for count in (2, 8))
    weights = weights_over(SCALING, ["standard.vae", "standard.scaling.1", "standard.scaling.2"])
    there, back = cheaper_by(small, 2.0, large, 8.0, weights), cheaper_by(large, 8.0, small, 2.0, weights)
    assert (there.mean, back.mean) == (pytest.approx(0.0, abs=1e-12), pytest.approx(0.0, abs=1e-12))
    assert there.variance == pytest.approx(back.variance, rel=1e-12)


@pytest.mark.parametrize("sessions", [THREE, {}])
def test_no_order_of_the_bids_changes_a_rank(tmp_path: Path, sessions: dict[str, int]) -> None:
    nodes = {
        "two": scaling_node(2, 130.0, sessions),
        "four": scaling_node(4, 66.0, sessions),
        "eight": scaling_node(8, 33.5, sessions),
    }
    found = []
    for order in itertools.permutations(nodes):
        made = tender(tmp_path, {"base": nodes["eight"]} | {name: nodes[name] for name in order}, SCALING)
        rows = {at.name: at for at in made.rows}
        found.append([(name, rows[name].rank, rows[name].ratio, rows[name].pareto) for name in sorted(nodes)])
    assert all(one == found[0] for one in found)
    assert all(rank is not None for _, rank, _, _ in found[0])


def test_the_mean_of_sessions_by_hand() -> None:
    rates = {"0": 1.0, "1": math.e**2, "2": math.e**3, "3": math.e**5, "4": math.e**7}
    stat = session_stat(rates, THREE)  # means 1, 4, 7
    assert (stat.n, stat.sessions, stat.independent) == (5, 3, 3)
    assert (stat.mean, stat.std) == (pytest.approx(4.0), pytest.approx(3.0))
    two = session_stat(rates, dict.fromkeys(rates, 1) | {"4": 2})
    assert (two.sessions, two.mean) == (None, pytest.approx(3.4))


def test_a_declared_variance_by_hand() -> None:
    rows = scored_tests(node(1.0, 1.0), WEIGHTS)  # vae is bound by the CPU, a quarter
    machines = (GPU_STD * 0.75) ** 2 + (HOST_STD * 0.25) ** 2
    assert machine_variance(rows, WEIGHTS) == pytest.approx(machines + day_variance(rows, WEIGHTS), rel=1e-12)
    seen = {label: msgspec.structs.replace(each, sessions=THREE) for label, each in rows.items()}
    assert machine_variance(seen, WEIGHTS) == pytest.approx(machines, rel=1e-12), "sessions do not show it"
    assert day_variance(rows, WEIGHTS) > day_variance(seen, WEIGHTS) == 0.0
    made = predicted(Estimate(mean=0.5, variance=1e-4, df=8.0, n=5), 3e-4)
    assert (made.mean, made.variance, made.df) == (0.5, pytest.approx(4e-4), pytest.approx(8.0 * 16))


def sessions_row(made: TestSummary, rates: Mapping[str, float], sessions: Mapping[str, int]) -> TestSummary:
    """The row with these repeats in these sessions."""
    return msgspec.structs.replace(
        made, repeats=dict(rates), sessions=dict(sessions), log_perf=session_stat(rates, sessions)
    )


def test_hours_between_launches_make_sessions(tmp_path: Path) -> None:
    whole = make_records.plan("standard", {"vae": PER_GPU}, 2, 6)
    make_records.write_run(tmp_path / "run", whole, slices=24)
    make_records.divide_into_sessions(tmp_path / "run", whole, 3)
    vae = load(tmp_path / "run").tests["standard.vae"]
    assert vae.sessions == {"0": 1, "1": 1, "2": 2, "3": 2, "4": 3, "5": 3}
    logs = [math.log(rate) for rate in vae.repeats.values()]
    means = [sum(logs[i : i + 2]) / 2 for i in (0, 2, 4)]
    assert vae.log_perf.sessions == 3
    assert vae.log_perf.std == pytest.approx(statistics.stdev(means), rel=1e-9)


def test_sessions_back_to_back_are_one(tmp_path: Path) -> None:
    """Also after interruptions, which would make one long session and two of one repeat certain of themselves."""
    whole = make_records.plan("standard", {"vae": PER_GPU}, 2, 6)
    make_records.write_run(tmp_path / "run", whole, slices=24)

    def interrupted(made: dict[str, Any]) -> None:
        made["mnb"]["session"] = max(1, made["mnb"]["launch"]["run"] - 2)

    tampering.records(interrupted)(tmp_path / "run")
    make_records.write_ledger(tmp_path / "run", whole)
    for path in (tmp_path / "run").glob("standard.vae.J*.json"):
        assert json.loads(path.read_bytes())["mnb"]["started_utc"].startswith("2026-01-06")
    found = load(tmp_path / "run")
    assert found.tests["standard.vae"].sessions == {}
    assert found.merged_sessions == "3 sessions count as one: they are less than 6 h apart"
    alarms = first_screen(build_report(found, "run", Scale(weights={"standard.vae": 1.0}))).alarms
    told = {fact.name: fact.text for fact in alarms if "session" in fact.name}
    assert list(told) == ["one session", "sessions"]
    assert told["sessions"] == found.merged_sessions


def spread(rate: float, logs: Sequence[float], sessions: Mapping[str, int]) -> Summary:
    """A node whose repeats have these logarithms."""
    rates = {str(index): rate * math.exp(each) for index, each in enumerate(logs)}
    made = sessions_row(row(rate), rates, sessions)
    at = Provenance(kind="measured", source="by hand", hardware="1 x GPU")
    tests = {"standard.convnet": made}
    return Summary(suite="standard", units="true", devices=1, provenance=at, has_plan=True, tests=tests)


def test_equal_bids_of_different_sessions_share_a_rank(tmp_path: Path) -> None:
    """Repeats of one session agree to 0.1 %, and its day was 1.5 % off."""
    quiet = [-0.001, 0.0, 0.0, 0.0, 0.001]
    one = {"a": spread(100.0, quiet, {}), "b": spread(101.5, quiet, {})}
    weights = {"standard.convnet": 1.0}
    made = tender(tmp_path, one, weights)
    assert ranks(made) == {"a": 1, "b": 1}
    days = [-0.015, -0.014, 0.0, 0.001, 0.015]
    three = {"a": spread(100.0, days, THREE), "b": spread(101.5, days, THREE)}
    made = tender(tmp_path, three, weights)
    assert ranks(made) == {"a": 1, "b": 1}
    far = tender(tmp_path, {"a": three["a"], "b": spread(120.0, days, THREE)}, weights)
    assert ranks(far) == {"b": 1, "a": 2}


def test_cost_over_the_years_has_the_interval_of_the_ratio(tmp_path: Path) -> None:
    bids = {"base": node(100.0, 100.0), "a": node(200.0, 200.0), "b": node(100.0, 100.0)}
    made = tender(tmp_path, bids, WEIGHTS, tariff_per_kwh=0.1)
    (a, _) = made.rows
    assert a.owned_interval.value == pytest.approx(a.owned_per_reference, rel=1e-12)
    assert a.owned_interval.low == pytest.approx(a.owned.total / a.ratio_interval.high, rel=1e-12)
    assert a.per_reference.interval.high == pytest.approx(1000.0 / a.ratio_interval.low, rel=1e-12)
    declared = (GPU_STD * 0.75) ** 2 + (HOST_STD * 0.25) ** 2
    assert math.log(a.ratio_interval.high / 2.0) > t_quantile(0.975, math.inf) * math.sqrt(declared)


def said_next(made: Tender) -> str:
    return next(fact.text for fact in tender_facts(made) if fact.name == "next")


def test_what_is_next_is_what_is_in_the_way(tmp_path: Path) -> None:
    """A reference of other work, or a bid that cannot be used, is not mended by a new run of all bidders."""
    few = {name: node(rate, rate, spread=(0.99, 1.0, 1.01)) for name, rate in (("a", 100.0), ("b", 90.0))}
    assert "new run" in said_next(tender(tmp_path, few, WEIGHTS))
    other = with_tests(with_options(node(100.0, 100.0)), options={"batch_size": 256})
    alike = {name: with_options(node(100.0, 100.0)) for name in ("a", "b")}
    assert '"reference"' in said_next(tender(tmp_path, {"base": other} | alike, WEIGHTS))
    file = tmp_path / "bids.json"
    bids = json.loads(file.read_text())
    assert compare_bids(replaced(file, bids | {"reference": "a.json"})).tests
    weightless = [
        msgspec.structs.replace(at, score_status="none", fit=False, rank=None) for at in compare_bids(file).rows
    ]
    assert said_next(msgspec.structs.replace(compare_bids(file), rows=tuple(weightless))).startswith('name "weights"')
    failing = with_tests(alike["b"], failures=5)
    assert said_next(tender(tmp_path, {"base": other} | alike | {"b": failing}, WEIGHTS)).startswith(
        "ask b for a new run"
    )
    (tmp_path / "b.json").write_text("cut")
    assert said_next(compare_bids(file)).startswith("have b mend what is refused")


def replaced(file: Path, content: dict[str, Any]) -> Path:
    file.write_text(json.dumps(content))
    return file


def test_all_files_are_looked_for_before_one_is_read(tmp_path: Path) -> None:
    """A missing bid or weights file is refused before the first bid is verified, which here could not even be read."""
    (tmp_path / "a.json").write_text("cut")
    offers = {name: {"results": f"{name}.json", "price": 1000.0} for name in ("a", "b")}
    file = replaced(tmp_path / "bids.json", {"reference": "v100", "bids": offers})
    with pytest.raises(InputError, match=r"bid 'b': .*b\.json: no such"):
        compare_bids(file)
    (tmp_path / "b.json").write_text("cut")
    replaced(file, {"reference": "a.json", "bids": offers, "weights": "w.json"})
    with pytest.raises(InputError, match=r"w\.json"):
        compare_bids(file)


def test_the_least_price_is_a_plain_figure(tmp_path: Path) -> None:
    offers = {"a": {"results": "a.json", "price": 1e-9}}
    with pytest.raises(InputError, match=r"price: expected a number of at least 0\.000001"):
        compare_bids(replaced(tmp_path / "bids.json", {"reference": "v100", "bids": offers}))

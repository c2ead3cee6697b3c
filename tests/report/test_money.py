"""Prices, bids and estimates: every rule on numbers that are computed by hand."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from statistics import geometric_mean, stdev
from typing import Any

import msgspec
import pytest
from printing import on_terminal, text_of
from rows import changed, row_of

from milabench_ng.analysis.scoring.scale import Scale, shipped_scale
from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.scoring.scored import scored_tests
from milabench_ng.analysis.statistics.intervals import log_stat, t_quantile
from milabench_ng.analysis.summary.folder import encode_summary, load_baseline
from milabench_ng.analysis.summary.summary import EstimatedRate, Origin, Provenance, Stat, Summary, TestSummary
from milabench_ng.model.errors import InputError
from milabench_ng.present.html.as_html import write as write_html
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.statements import details
from milabench_ng.present.render.tender_facts import winner
from milabench_ng.present.render.tender_tables import tender_document, tender_sections
from milabench_ng.present.writers import Form, write, write_report
from milabench_ng.records.marks import Mark
from milabench_ng.records.work import DataRead
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, build_report
from milabench_ng.tender.bids import read_bids
from milabench_ng.tender.leave_one_out import leave_one_out
from milabench_ng.tender.offers import compare_bids
from milabench_ng.tender.ownership import NodePower, Terms, ownership
from milabench_ng.tender.ranking import pareto_set
from milabench_ng.tender.stability import Worth, per_throughput, stability
from milabench_ng.tender.tender import Tender

WEIGHTS = {"standard.vae": 1.0, "standard.convnet": 3.0}
SPREAD = (0.99, 1.0, 1.0, 1.0, 1.01)
"""Of five repeats, around their mean."""


def row(rate: float, spread: tuple[float, ...] = SPREAD, **more: Any) -> TestSummary:
    rates = [rate * each for each in spread]
    return row_of(
        n=len(rates),
        failures=0,
        train=Stat(len(rates), rate, rate, rate, 0.0),
        log_perf=log_stat(rates),
        repeats={str(index): each for index, each in enumerate(rates)},
        planned=len(rates),
        tiers=("full",),
        **({"unit": "images", "classic_factor": 1.0, "bound": "gpu-compute", "precision": ("fp32",)} | more),
    )


def node(vae: float, convnet: float, devices: int = 8, **more: Any) -> Summary:
    at = Provenance(kind="measured", source="by hand", hardware=f"{devices} x NVIDIA H200", software={"torch": "2.11"})
    more = {"power_w": 500.0, "devices": devices} | more
    tests = {"standard.vae": row(vae, **{"bound": "cpu"} | more), "standard.convnet": row(convnet, **more)}
    return Summary(suite="standard", units="true", devices=devices, provenance=at, has_plan=True, tests=tests)


def test_dollars_per_reference_node_and_their_interval() -> None:
    made = build_report(
        node(200.0, 400.0, 4),
        "run",
        scale=Scale(weights=WEIGHTS),
        baselines=[("base", node(100.0, 100.0, 8))],
        options=ReportOptions(price=1000.0, price_per="gpu"),
    )
    ratio = (2.0 * 4.0**3) ** 0.25 * 4 / 8
    (per,) = made.price.per_reference
    assert made.price.per_node == 4000.0
    assert per.value == pytest.approx(4000.0 / ratio, rel=1e-12)
    assert per.indicative == ()
    # Repeats are alike on both tests, so that the mean of every repeat spreads as each of them does.
    factor = math.exp(t_quantile(0.975, 8) * stdev(map(math.log, SPREAD)) * math.sqrt(2 / 5))
    assert per.interval.low == pytest.approx(4000.0 / ratio / factor, rel=1e-12)
    assert per.interval.high == pytest.approx(4000.0 / ratio * factor, rel=1e-12)
    assert made.price.rpp == pytest.approx(1000.0 / (200.0 * 400.0**3) ** 0.25, rel=1e-12)
    assert made.price.interval.low <= made.price.rpp <= made.price.interval.high


def estimated(value: float, low: float, high: float) -> TestSummary:
    return row_of(
        n=0,
        failures=0,
        estimate=EstimatedRate(value=value, low=low, high=high, held=19, known=20),
        origin=Origin(kind="estimated", source="a rule"),
        unit="images",
        classic_factor=1.0,
        bound="gpu-compute",
        precision=("fp32",),
        devices=8,
    )


def everything(report: Report) -> dict[str, str]:
    """The statements by name."""
    return {fact.name: fact.text for fact in (*first_screen(report).facts, *details(report))}


def test_an_estimate_says_so_at_the_ratio_and_has_no_interval() -> None:
    base = node(100.0, 100.0)
    mixed = msgspec.structs.replace(base, tests=base.tests | {"standard.vae": estimated(100.0, 80.0, 160.0)})
    made = build_report(
        node(200.0, 400.0),
        "run",
        scale=Scale(weights=WEIGHTS),
        baselines=[("mixed", mixed)],
        options=ReportOptions(price=9.0),
    )
    (other,) = made.comparisons
    assert other.indicative == ("1 of 2 rows of the baseline are estimated",)
    measured = next(part for part in other.subsets if part.name == "measured rows")
    assert (measured.labels, measured.ratio) == (("standard.convnet",), pytest.approx(4.0, rel=1e-12))
    ratio = (2.0 * geometric_mean(SPREAD) * 4.0**3) ** 0.25
    assert other.ratio == pytest.approx(ratio, rel=1e-12)
    assert other.effect.ratio is None  # no interval is made of launches that never ran
    (per,) = made.price.per_reference
    assert (per.value, per.interval) == (pytest.approx(9 / ratio, rel=1e-12), None)
    facts = everything(made)
    assert facts["ratio to mixed"] == f"{ratio:.3f}, no interval: estimated, not measured"
    assert "per mixed-node equivalent (approximate)" in facts["Price"]
    back = build_report(
        mixed, "run", scale=Scale(weights=WEIGHTS), baselines=[("base", base)]
    )  # the run is what was estimated
    assert everything(back)["ratio to base"] == "1.000, no interval: estimated, not measured"


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown"])
def test_every_form_marks_an_estimated_ratio(form: Any) -> None:
    base = node(100.0, 100.0)
    mixed = msgspec.structs.replace(base, tests=base.tests | {"standard.vae": estimated(100.0, 80.0, 160.0)})
    made = build_report(node(200.0, 400.0), "run", scale=Scale(weights=WEIGHTS), baselines=[("mixed", mixed)])
    text = text_of(write_report, made, form)
    if form == "json":
        row = next(each for each in json.loads(text)["tests"] if each["test"] == "standard.vae")
        assert (row["origin"], row["effect"]["ratio"]) == ("estimated", None)
    else:
        assert "estimated" in next(line for line in text.splitlines() if re.match(r"\W*(standard\.)?vae\b", line))


def test_one_line_says_what_an_estimated_baseline_is_before_any_figure() -> None:
    run, old = load_baseline("h200"), load_baseline("a100")
    weights = shipped_scale("standard").weights
    made = build_report(run, "run", scale=Scale(weights=weights), baselines=[("baselines/a100.json", old)])
    first, *_ = first_screen(made).facts
    said = (
        "4 of 19 tests, 23% of the weight, based on one factor (h200 times 0.428): not a measurement; "
        "measured comparisons: lambda-a100, unet3d-a100"
    )
    assert (first.name, first.text) == ("APPROXIMATE", f"vs a100: {said}")
    assert everything(made)["vs a100"].endswith("4 of 19 tests, 23% of the weight   estimated, not measured")


def test_one_line_says_what_a_published_baseline_is_before_any_figure() -> None:
    run, old = load_baseline("h200"), load_baseline("v100")
    weights = shipped_scale("standard").weights
    made = build_report(run, "run", scale=Scale(weights=weights), baselines=[("v100", old)])
    first, *_ = first_screen(made).facts
    assert first.name == "APPROXIMATE"
    covered = "10 of 19 tests, 49% of the weight"
    assert first.text.startswith(f"vs v100: {covered}; 10 of 10 rows of the baseline are published, torch: ")
    assert covered in everything(made)["vs v100"]
    nothing = build_report(run, "run", scale=Scale(weights={"standard.reso": 1.0}), baselines=[("v100", old)])
    assert "APPROXIMATE" not in {fact.name for fact in first_screen(nothing).facts}  # since there is no ratio


def test_an_estimated_row_has_no_launches_and_is_not_charged_for_their_spread() -> None:
    base = node(100.0, 100.0)
    mixed = msgspec.structs.replace(base, tests=base.tests | {"standard.vae": estimated(100.0, 80.0, 160.0)})
    (vae, _) = scored_tests(mixed, WEIGHTS).values()
    assert (vae.n, vae.fail, vae.perf, vae.perf_adj) == (0, 0, 100.0, 100.0)
    assert (vae.std_pct, vae.interval, vae.estimated) == (None, None, True)
    assert score(mixed, WEIGHTS).status == "complete"
    with pytest.raises(ValueError, match="measured or estimated, not both"):
        msgspec.structs.replace(row(100.0), estimate=EstimatedRate(value=1.0, low=0.5, high=2.0))
    for band in ((0.0, 2.0), (1.1, 2.0), (0.5, 0.9), (5e-324, 2.0), (0.5, 1e300)):
        with pytest.raises(ValueError, match="an estimate of 1 with a band of"):
            EstimatedRate(value=1.0, low=band[0], high=band[1])


def test_the_figures_of_2020_are_indicative() -> None:
    run, old = load_baseline("h200"), load_baseline("v100")
    weights = shipped_scale("standard").weights
    (other,) = build_report(run, "run", scale=Scale(weights=weights), baselines=[("v100", old)]).comparisons
    assert other.indicative[0] == f"{other.tests} of {other.tests} rows of the baseline are published"
    assert other.indicative[1] == f"torch: {run.provenance.software['torch']} vs. 1.5.0"


def test_ownership() -> None:
    terms = Terms(years=5, tariff_per_kwh=0.12, pue=1.3, utilization=0.7)
    made = ownership(300_000, NodePower(load_w=9000, idle_w=2000, boundary="given"), 1000, terms)
    kwh = (9 * 0.7 + 2 * 0.3) * 8766 * 5 * 1.3
    assert made.energy_kwh == pytest.approx(kwh, rel=1e-12)
    assert made.total == pytest.approx(300_000 + kwh * 0.12 + 5000, rel=1e-12)


def test_pareto() -> None:
    points = {"cheap": (1.0, 1.0), "dear": (3.0, 3.0), "beaten": (3.0, 2.0), "none": (0.5, None), "twin": (1.0, 1.0)}
    assert pareto_set(points) == {"cheap", "dear", "twin"}


def test_stability_by_hand() -> None:
    logs = {"a": math.log(2.0), "b": math.log(8.0)}
    weights = {"a": 1.0, "b": 1.0}
    one = Worth(name="one", logs=logs, weights=weights, devices=1, price=400, power=None, maintenance_per_year=0)
    two = Worth(
        name="two", logs={"a": math.log(5.0), "b": math.log(4.0)}, weights=weights, devices=1, price=460, power=None,
        maintenance_per_year=0,
    )  # fmt: skip
    assert per_throughput(one, None) == pytest.approx(100.0)  # 400 / sqrt(2 * 8)
    assert per_throughput(two, None) == pytest.approx(460 / math.sqrt(20))
    found = stability([one, two], None)
    assert found.order == ("one", "two")
    assert found.lead_pct == pytest.approx(460 / math.sqrt(20) - 100)
    changes = {change.what: change for change in found.changes}
    assert {change.what for change in found.turning} == {
        "weight of a +20%", "weight of b -20%", "price of one +20%", "price of two -20%",
    }  # fmt: skip
    assert not any("without" in what for what in changes), "that is what leave_one_out says"
    lighter = 400 / math.exp((1.2 * math.log(2) + math.log(8)) / 2.2)
    heavier = 460 / math.exp((1.2 * math.log(5) + math.log(4)) / 2.2)
    assert changes["weight of a +20%"].lead_pct == pytest.approx(100 * (lighter / heavier - 1))


def test_ranks_without_one_test_or_group_by_hand() -> None:
    """Costs of one: 400 / (2 x 8 x 4)^(1/3) = 100; of two: 300 / (1 x 16 x 1)^(1/3) = 119."""
    weights = dict.fromkeys(("s.a", "s.b", "s.c"), 1.0)

    def bid(name: str, price: float, *rates: float) -> Worth:
        logs = {label: math.log(rate) for label, rate in zip(weights, rates, strict=True)}
        return Worth(name=name, logs=logs, weights=weights, devices=1, price=price, power=None, maintenance_per_year=0)

    worths = [bid("one", 400, 2, 8, 4), bid("two", 300, 1, 16, 1)]
    groups = {"s.a": "training", "s.c": "training", "s.b": "serving"}
    found = leave_one_out(worths, None, groups)
    assert found.whole.ranks == {"one": 1, "two": 2}
    assert {one.what: [one.ranks["one"], one.ranks["two"]] for one in found.without} == {
        "s.a": [1, 2],  # 400 / sqrt(8 x 4) = 70.7 against 300 / sqrt(16 x 1) = 75
        "s.b": [1, 2],  # 400 / sqrt(2 x 4) = 141 against 300 / sqrt(1 x 1)
        "s.c": [2, 1],  # 400 / sqrt(2 x 8) = 100 against 300 / sqrt(1 x 16) = 75
        "training": [2, 1],  # 400 / 8 against 300 / 16
    }, "a group of one test is that test"
    assert found.kept == 2
    assert [one.what for one in found.moving] == ["s.c", "training"]
    alone = [msgspec.structs.replace(one, weights={"s.a": 1.0}, logs={"s.a": 0.0}, price=9) for one in worths]
    equal = leave_one_out(alone, None, {})
    assert (equal.whole.ranks, equal.without) == ({"one": 1, "two": 1}, ())


@pytest.fixture
def tender_file(tmp_path: Path) -> Path:
    nodes = {"fast": node(200.0, 400.0), "slow": node(100.0, 200.0), "twin": node(200.2, 400.3), "base": node(100, 100)}
    for name, one in nodes.items():
        (tmp_path / f"{name}.json").write_text(encode_summary(one))
    weights = {label: {"weight": weight} for label, weight in WEIGHTS.items()}
    (tmp_path / "w.json").write_text(json.dumps(weights))
    bids: dict[str, Any] = {
        name: {"results": f"{name}.json", "price": price}
        for name, price in (("slow", 90_000), ("fast", 100_000), ("twin", 100_000))
    }
    file = tmp_path / "bids.json"
    content = {"reference": "base.json", "bids": bids, "weights": "w.json", "budget": 450_000, "currency": "EUR"}
    file.write_text(json.dumps(content))
    return file


def change(file: Path, **values: Any) -> Path:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return file


def test_bids_are_ranked_with_intervals_and_those_alike_share_a_rank(tender_file: Path) -> None:
    made = compare_bids(tender_file)
    rows = {at.name: at for at in made.rows}
    assert [(at.rank, at.name) for at in made.rows] == [(1, "twin"), (1, "fast"), (3, "slow")]
    ratio = (2.0 * 4.0**3) ** 0.25
    assert rows["fast"].ratio == pytest.approx(ratio, rel=1e-12)
    assert rows["fast"].per_reference.value == pytest.approx(100_000 / ratio, rel=1e-12)
    assert rows["fast"].price_per_point == pytest.approx(100_000 / 8 / (200.0 * 400.0**3) ** 0.25, rel=1e-12)
    assert (rows["fast"].nodes, rows["slow"].nodes) == (4, 5)
    assert rows["slow"].total_ratio == pytest.approx(5 * ratio / 2, rel=1e-12)
    assert [at.name for at in made.rows if at.pareto] == ["twin", "slow"]
    assert made.criterion == "price per reference node"
    assert made.exit_code == 0


def test_a_budget_is_for_what_the_nodes_cost_to_buy(tender_file: Path) -> None:
    made = compare_bids(change(tender_file, tariff_per_kwh=0.1, years=4, pue=1.5))
    (bought,) = (one for one in tender_sections(made) if one.key == "purchase")
    assert bought.title == "purchase: a budget of 450,000 EUR for the prices of the nodes"
    assert (
        max(row.total_cost or 0 for row in made.rows)
        > 450_000
        >= max((row.nodes or 0) * row.price for row in made.rows)
    )


def test_bids_over_the_years(tender_file: Path) -> None:
    made = compare_bids(change(tender_file, tariff_per_kwh=0.1, years=4, pue=1.5))
    fast = next(at for at in made.rows if at.name == "fast")
    kwh = 8 * 0.5 * 8766 * 4 * 1.5  # 500 W of each GPU as measured
    assert fast.owned.total == pytest.approx(100_000 + 0.1 * kwh, rel=1e-12)
    alone = node(200.0, 400.0)
    alone.tests["standard.convnet"] = row(400.0, power_w=900.0, devices=1)  # the other seven GPUs idled
    (tender_file.parent / "fast.json").write_text(encode_summary(alone))
    again = next(at for at in compare_bids(tender_file).rows if at.name == "fast")
    assert again.owned.energy_kwh == fast.owned.energy_kwh
    (tender_file.parent / "fast.json").write_text(encode_summary(node(200.0, 400.0)))
    assert made.criterion == "cost over 4 years per reference node"
    assert any("only the GPUs" in note for note in made.notes)
    bids = json.loads(tender_file.read_text())["bids"]
    bids["slow"]["watts_load"] = 4000
    mixed = compare_bids(change(tender_file, bids=bids))
    assert mixed.criterion == "price per reference node"  # whole nodes are not compared with GPUs alone
    assert any("ranks are by price" in note for note in mixed.notes)
    del bids["slow"]["watts_load"]
    idle = compare_bids(change(tender_file, bids=bids, utilization=0.5))
    assert idle.criterion == "price per reference node"  # what a node takes when it idles is not known
    assert "the power of slow, fast, twin is unknown" in " ".join(idle.notes)


def test_a_tender_tells_of_how_many_launches_power_is_known(tender_file: Path) -> None:
    """Of one in each of two tests."""
    (tender_file.parent / "fast.json").write_text(encode_summary(node(200.0, 400.0, power_launches=1)))
    made = compare_bids(change(tender_file, tariff_per_kwh=0.1, years=4))
    launches = sum(at.n for at in node(200.0, 400.0).tests.values())
    told = f"the power of fast is known for 2 of {launches} launches; missing for standard.vae, standard.convnet"
    assert told in made.notes


def few_repeats(summary: Summary) -> Summary:
    """The same from three repeats."""
    rows = {label: row(at.train.mean, (0.99, 1.0, 1.01)) for label, at in summary.tests.items() if at.train}
    return msgspec.structs.replace(summary, tests=rows)


def test_no_order_is_shown_where_nothing_is_ranked(tender_file: Path) -> None:
    """The cheapest for its throughput stands last in the file of bids, and there it stays."""
    names = {"slow": node(100.0, 200.0), "fast": node(200.0, 400.0), "twin": node(220.0, 440.0)}
    made = rebid(tender_file, **{name: few_repeats(one) for name, one in names.items()})
    assert [(at.name, at.rank) for at in made.rows] == [("slow", None), ("fast", None), ("twin", None)]
    assert (made.stability, made.leave_one_out) == (None, None)
    for form in ("table", "markdown"):
        text = " ".join(printed(made, form).split())
        assert "nothing is ranked: fewer than 5 repeats" in text
        assert [word for word in ("leads", " first", "Pareto", "lower is better", "ranked over:") if word in text] == []
    tile = winner(made, several=False)
    assert (tile.parts, tile.tone) == (("none", "nothing is ranked: fewer than 5 repeats"), "fair")


def test_the_page_on_bids_begins_with_the_winner(tender_file: Path) -> None:
    shared = winner(compare_bids(tender_file), several=False)
    assert (shared.name, shared.parts[0], shared.parts[-1]) == (
        "Winner",
        "twin and fast",
        "no certain order between them",
    )
    offers = json.loads(tender_file.read_text())["bids"]
    alone = compare_bids(change(tender_file, bids={name: offers[name] for name in ("slow", "fast")}))
    price = next(at.per_reference for at in alone.rows if at.name == "fast")
    tile = winner(alone, several=False)
    assert (tile.parts[0], tile.tone) == ("fast", "good")
    assert f"{price.value:,.0f} EUR" in tile.parts[1]
    page = text_of(write_html, alone)
    assert '<h2>Winner</h2><p class="figure good">fast</p>' in page
    assert page.index("<h2>Winner</h2>") < page.index('<dl class="facts">')


def test_a_score_that_does_not_count_has_its_reason(tender_file: Path) -> None:
    partial = node(200.0, 400.0)
    kept = {"standard.vae": partial.tests["standard.vae"]}
    made = rebid(tender_file, fast=msgspec.structs.replace(partial, tests=kept, omitted=("standard.convnet",)))
    assert next(at.why for at in made.rows if at.name == "fast") == (
        "the score is partial: 1 of 2 weighted tests were not selected"
    )
    assert [at.name for at in made.rows if at.price_per_point is None] == ["fast"]
    scores = next(one for one in tender_sections(made) if one.key == "scores")
    assert any(note.startswith("no price per score of a partial score") for note in scores.notes)
    lacking = rebid(tender_file, fast=msgspec.structs.replace(partial, tests=kept))
    assert next(at.why for at in lacking.rows if at.name == "fast") == (
        "the score is invalid: records are missing in 1 test (convnet)"
    )


def test_a_bid_under_five_repeats_has_no_rank_and_the_others_have(tender_file: Path) -> None:
    made = rebid(tender_file, fast=few_repeats(node(200.0, 400.0)))
    assert made.why_unranked == "fast: fewer than 5 repeats"
    assert {at.name for at in made.rows if at.rank is None} == {"fast"}
    assert "ranks  not ranked: fast: fewer than 5 repeats" in re.sub(" {2,}", "  ", printed(made, "table"))


def printed(made: Tender, form: Form) -> str:
    return text_of(write, tender_document(made), form)


def test_every_form_of_a_tender(tender_file: Path) -> None:
    made = compare_bids(tender_file)
    table, markdown = printed(made, "table"), printed(made, "markdown")
    for text in (table, markdown):
        assert "one node of base.json" in text
        assert "Sensitivity" in text
    (header, *rows) = csv.reader(io.StringIO(printed(made, "csv")))
    assert header[:2] == ["bid", "rank"]
    assert "price of a node (EUR)" in header
    assert [cells[0] for cells in rows] == ["twin", "fast", "slow"]
    assert json.loads(printed(made, "json"))["rows"][2]["rank"] == 3


@pytest.mark.parametrize(
    ("terms", "criterion"),
    [({}, "price per reference node (EUR)"), ({"tariff_per_kwh": 0.1}, "cost per reference node (EUR)")],
)
def test_what_bids_are_ranked_by_stands_beside_the_rank(
    tender_file: Path, monkeypatch: pytest.MonkeyPatch, terms: dict[str, Any], criterion: str
) -> None:
    made = compare_bids(change(tender_file, **terms))
    lines = on_terminal(monkeypatch, 80, write, tender_document(made), "table")
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    (header, *rows) = csv.reader(io.StringIO(printed(made, "csv")))
    assert header[:3] == ["bid", "rank", criterion]
    first = made.rows[0]
    value = first.owned_per_reference if terms else first.per_reference and first.per_reference.value
    assert float(rows[0][2]) == value
    head, end = lines.index("bids"), next(place for place, line in enumerate(lines) if line.startswith("Pareto:"))
    assert [line.split()[:2] for line in lines[head + 1 : end] if line.startswith(first.name)] == [[first.name, "1"]]
    assert all(word in " ".join(lines[head + 1 : head + 5]) for word in ("rank", "Pareto")), "in one block"


OFFER = {"results": "fast.json", "price": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bids": {}}, r"bids.json: bids: expected an object that is not empty. Expected"),
        ({"nodes": 3}, "both nodes and budget"),
        ({"budget": None, "nodes": 0}, "nodes: expected a whole number of at least 1"),
        ({"budget": 0}, r"budget: expected a number of at least 0\.000001"),
        ({"years": 0}, r"years: expected a number above 0"),
        ({"tariff_per_kwh": -0.1}, r"tariff_per_kwh: expected a number of at least 0"),
        ({"pue": 0.9999999}, r"pue: expected a number of at least 1"),
        ({"utilization": 1.5}, r"utilization: expected a number of at most 1 \(80% is 0\.8\)"),
        ({"utilization": -1e-10}, r"utilization: expected a number of at least 0"),
        ({"margin": 0}, r"margin: expected a number above 0"),
        ({"unknown": 1}, "unknown key 'unknown'"),
        (
            {"bids": {"a": {"results": "fast.json", "price": 0}}},
            r"bids\.json: bid 'a': price: expected a number of at least 0\.000001",
        ),
        ({"bids": {"a": OFFER | {"watts_idle": -1}}}, "bid 'a': watts_idle: expected a number of at least 0"),
        (
            {"bids": {"a": OFFER | {"maintenance_per_year": -1}}},
            "bid 'a': maintenance_per_year: expected a number of at least",
        ),
        ({"bids": {"a": OFFER | {"watts_idle": 5, "watts_load": 4}}}, "bid 'a': watts_idle is above watts_load"),
        ({"bids": {"a": OFFER | {"watts_idle": 5}}}, "bid 'a': watts_idle without watts_load. Give both"),
        ({"years": "5"}, r"years: expected a number, got text \(write it without quotes\)"),
        (
            {"bids": {"a": OFFER | {"watts_load": 5}}, "utilization": 0.5},
            "bid 'a': utilization is 0.5, so watts_load needs watts_idle",
        ),
    ],
)
def test_bad_files_of_bids(tender_file: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_bids(change(tender_file, **values))


def test_the_bounds_of_a_file_of_bids_are_allowed(tender_file: Path) -> None:
    made = read_bids(change(tender_file, tariff_per_kwh=0, pue=1, utilization=0, budget=None, nodes=1))
    assert (made.tariff_per_kwh, made.pue, made.utilization, made.nodes) == (0, 1, 0, 1)


def test_a_ratio_over_some_of_the_tests_says_so_wherever_it_stands() -> None:
    both = node(100.0, 100.0)
    base = msgspec.structs.replace(both, tests={"standard.vae": both.tests["standard.vae"]})
    made = build_report(
        node(200.0, 400.0, bound="cpu"),
        "run",
        scale=Scale(weights=WEIGHTS),
        baselines=[("base", base)],
        options=ReportOptions(price=1000.0),
    )
    (per,) = made.price.per_reference
    assert per.value == pytest.approx(500.0, rel=1e-12)
    assert (per.partial, per.indicative) == ("over 1 of 2 tests", ())
    facts = everything(made)
    assert facts["By bottleneck"] == "vs base: cpu 2.00"
    assert "1 of 2 tests" in facts["vs base"]
    assert facts["Price"].endswith("$500.00 per base-node equivalent [494.87, 505.18]")


def test_the_header_names_the_node_and_where_the_weight_of_unplanned_steps_went() -> None:
    plain = node(200.0, 400.0, 1)
    run = msgspec.structs.replace(
        plain,
        provenance=msgspec.structs.replace(plain.provenance, node={"processors": "2 x Test CPU", "driver": "580"}),
        tests=plain.tests | {"standard.scaling.1": row(50.0)},
    )
    weights = WEIGHTS | {"standard.scaling.1": 2.0, "standard.scaling.2": 2.0}
    made = build_report(run, "run", scale=Scale(weights=weights))
    facts = everything(made)
    assert facts["Node"].endswith("   2 x Test CPU")
    assert facts["node"] == "driver 580"
    assert facts["weights"].startswith("standard.scaling.2 need more GPUs than this node has; ")
    assert [line.scored.weight for line in made.lines] == [1.0, 3.0, 4.0]
    for others in (WEIGHTS, weights):  # no step of scaling was selected
        assert "weights" not in everything(build_report(plain, "run", scale=Scale(weights=others)))


def rebid(file: Path, **summaries: Summary) -> Tender:
    """The tender with other results for some of its bids."""
    for name, one in summaries.items():
        (file.parent / f"{name}.json").write_text(encode_summary(one))
    return compare_bids(file)


DATA = DataRead(name="imagenet", kind="twin", scale=1.0, cache="cold")


def with_options(made: Summary, **more: Any) -> Summary:
    """``made`` with its options and data on every test; ``more`` is changed on convnet alone."""
    recorded: dict[str, Any] = {"options": {"batch_size": 64}, "data": (DATA,)}
    tests = {label: changed(at, **recorded) for label, at in made.tests.items()}
    tests["standard.convnet"] = changed(tests["standard.convnet"], **more)
    return msgspec.structs.replace(made, tests=tests)


LARGER = {"options": {"batch_size": 512}}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (LARGER, "option batch_size 512 vs. 64"),
        ({"precision": ("tf32",)}, "precision tf32 vs. fp32"),
        ({"data": (msgspec.structs.replace(DATA, scale=0.01),)}, "data scale 0.01 vs. 1"),
    ],
)
def test_a_test_of_other_work_in_any_bid_leaves_the_ranking_for_all(
    tender_file: Path, other: dict[str, Any], why: str
) -> None:
    made = rebid(
        tender_file,
        base=with_options(node(100.0, 100.0)),
        slow=with_options(node(100.0, 2000.0), **other),
        fast=with_options(node(200.0, 400.0)),
        twin=with_options(node(200.0, 400.0)),
    )
    # By vae alone: twice the throughput for 100 instead of 90. By convnet the slow one would be five times as fast.
    assert {at.name: at.rank for at in made.rows} == {"fast": 1, "twin": 1, "slow": 3}
    assert {at.name: at.ratio for at in made.rows} == pytest.approx({"fast": 2.0, "twin": 2.0, "slow": 1.0})
    assert (made.tests, made.of) == (("standard.vae",), 2)
    assert [at.name for at in made.rows if at.pareto] == ["fast", "twin", "slow"]
    assert {(one.test, one.bids) for one in made.other_work} == {
        ("standard.convnet", ("slow", "fast")),
        ("standard.convnet", ("slow", "twin")),
    }
    for form in ("table", "markdown"):
        text = printed(made, form).replace("\\_", "_")
        assert "1 of 2 weighted tests; other work from bid to bid: convnet" in text
        assert why in text
    assert json.loads(printed(made, "json"))["tests"] == ["standard.vae"]
    (header, *rows) = csv.reader(io.StringIO(printed(made, "csv")))
    assert {cells[header.index("ranked over (tests)")] for cells in rows} == {"1"}


def test_nothing_is_ranked_where_no_weighted_test_is_the_same_work(tender_file: Path) -> None:
    summaries = {
        "base": with_options(node(100.0, 100.0)),
        "slow": with_options(node(100.0, 2000.0), **LARGER),
        "fast": with_options(node(200.0, 400.0)),
        "twin": with_options(node(200.0, 400.0)),
    }
    slow = summaries["slow"]
    vae = changed(slow.tests["standard.vae"], precision=("tf32",))
    summaries["slow"] = msgspec.structs.replace(slow, tests=slow.tests | {"standard.vae": vae})
    made = rebid(tender_file, **summaries)
    assert made.why_unranked == "no weighted test is comparable across all bids and the reference"
    assert ({at.rank for at in made.rows}, {at.pareto for at in made.rows}) == ({None}, {False})
    assert (made.tests, made.of, made.stability) == ((), 2, None)
    assert {at.ratio for at in made.rows} == {None}, "no set of tests that all ratios are over"
    assert "nothing is ranked: no weighted test is comparable across all bids" in " ".join(
        printed(made, "table").split()
    )


def test_the_ranks_say_over_how_many_tests_they_are(tender_file: Path) -> None:
    made = compare_bids(tender_file)
    assert (made.tests, made.other_work) == (("standard.vae", "standard.convnet"), ())
    assert "2 of 2 weighted tests" in printed(made, "table")


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_the_marks_of_a_bid_stand_beside_its_rank(tender_file: Path, form: Any) -> None:
    marks = (
        Mark(kind="window shortened", value=0.5, limit=9.0),
        Mark(kind="options overridden", what="batch_size"),
        Mark(kind="throttled", device="3", what="hw_thermal", value=0.4, limit=0.005),
    )
    fast = node(200.0, 400.0)
    vae = msgspec.structs.replace(fast.tests["standard.vae"], marks=marks)
    made = rebid(tender_file, fast=msgspec.structs.replace(fast, tests=fast.tests | {"standard.vae": vae}))
    text = printed(made, form)
    rows = {at.name: at for at in made.rows}
    assert [len(rows[name].marks) for name in ("fast", "slow", "twin")] == [3, 0, 0]
    if form == "json":
        told = {row["name"]: row["marks"] for row in json.loads(text)["rows"]}
        assert [mark["kind"] for mark in told["fast"]] == ["window shortened", "options overridden", "throttled"]
        return
    if form == "csv":
        (header, *cells) = csv.reader(io.StringIO(text))
        beside = dict(zip([cell[0] for cell in cells], [cell[header.index("marked")] for cell in cells], strict=True))
        assert beside == {"fast": "marked", "twin": "no", "slow": "no"}
    else:
        assert "warnings" not in text, "said above the table, by name"
    for mark in marks:
        assert mark.sentence in text.replace("\\_", "_")


def test_a_score_beside_a_ratio_over_fewer_tests_says_which_tests_it_is_over() -> None:
    """Both are figures on one screen, and disagree where the ratio leaves tests out."""
    ours, base = node(90.0, 50.0), node(100.0, 100.0)
    both, alone = (
        build_report(ours, "run", Scale(weights=WEIGHTS), baselines=[("base", other)])
        for other in (base, msgspec.structs.replace(base, tests={"standard.vae": base.tests["standard.vae"]}))
    )
    told = {answer.name: answer.parts for answer in first_screen(alone).answers}
    assert list(told)[1:3] == ["vs base", "Score"], "the one that says better or worse is found first"
    assert any(part.startswith("all 2 tests, comparable or not") for part in told["Score"])
    assert any(part.startswith("only comparable work: 1 of 2 tests") for part in told["vs base"])
    (whole,) = (answer for answer in first_screen(both).answers if answer.name == "Score")
    assert not any(part.startswith("all 2 tests") for part in whole.parts)

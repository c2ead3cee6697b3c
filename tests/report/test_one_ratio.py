"""What is printed, ordered and judged is one ratio: over random summaries, in every form."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from printing import text_of
from rows import row_of

from milabench_ng.analysis.scoring.scale import Scale
from milabench_ng.analysis.statistics.intervals import log_stat
from milabench_ng.analysis.summary.folder import encode_summary
from milabench_ng.analysis.summary.summary import Provenance, Stat, Summary, TestSummary
from milabench_ng.model.stats import geometric_mean, mean, population_std
from milabench_ng.present.html.as_html import write as write_html
from milabench_ng.present.render.cells import figure, money
from milabench_ng.present.render.tender_tables import tender_document
from milabench_ng.present.writers import write, write_report
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, build_report
from milabench_ng.tender.acceptance import accept
from milabench_ng.tender.offers import compare_bids

LABELS = ("standard.vae", "standard.convnet", "standard.wlm")
WEIGHTS = {"standard.vae": 1.0, "standard.convnet": 3.0, "standard.wlm": 8.0}
PRICE = 30_000.0
RANDOM = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def rows(draw: st.DrawFn) -> TestSummary:
    """A test on one device: some repeats, some of whose launches may have failed."""
    level, spread = draw(st.floats(0.2, 5.0)), draw(st.sampled_from([0.0005, 0.005, 0.05]))
    rates = [
        100 * level * math.exp(spread * draw(st.floats(-2, 2))) for _ in range(draw(st.sampled_from([1, 3, 5, 8])))
    ]
    fail = draw(st.sampled_from([0, 0, 0, 1]))
    return row_of(
        n=len(rates) + fail,
        failures=fail,
        train=Stat(len(rates), min(rates), max(rates), mean(rates), population_std(rates)),
        log_perf=log_stat(rates),
        repeats={str(place): rate for place, rate in enumerate(rates)},
        planned=len(rates) + fail,
        tiers=("full",),
        unit="images",
        classic_factor=1.0,
        bound=draw(st.sampled_from(["cpu", "gpu-compute"])),
        precision=("fp32",),
    )


@st.composite
def nodes(draw: st.DrawFn) -> Summary:
    """A node of one to four devices that ran all tests."""
    devices = draw(st.integers(1, 4))
    at = Provenance(kind="measured", source="made up", hardware=f"{devices} x GPU")
    tests = {label: draw(rows()) for label in LABELS}
    return Summary(suite="standard", units="true", devices=devices, provenance=at, has_plan=True, tests=tests)


def reported(run: Summary, base: Summary) -> Report:
    options = ReportOptions(price=PRICE)
    return build_report(run, "run", Scale(weights=WEIGHTS), [("base", base)], options)


@RANDOM
@given(nodes(), nodes())
def test_a_comparison_is_the_weighted_mean_of_its_rows_and_its_verdict_is_on_it(run: Summary, base: Summary) -> None:
    (found,) = reported(run, base).comparisons
    own = {label: geometric_mean([*one.repeats.values()]) for label, one in run.tests.items()}
    other = {label: geometric_mean([*one.repeats.values()]) for label, one in base.tests.items()}
    for label in LABELS:
        assert found.rows[label].perf_ratio == pytest.approx(own[label] / other[label], rel=1e-9)
    logs = math.fsum(WEIGHTS[label] * math.log(own[label] / other[label]) for label in LABELS)
    assert found.ratio == pytest.approx(math.exp(logs / math.fsum(WEIGHTS.values())), rel=1e-9)
    for ratio, effect in ((found.ratio, found.effect), *((one.perf_ratio, one.effect) for one in found.rows.values())):
        assert ratio is not None
        assert effect.ratio is not None or effect.verdict == "not judged"
        if effect.ratio is not None:
            assert effect.ratio.n >= 5
            assert effect.ratio.value == pytest.approx(ratio, rel=1e-9)
            assert effect.ratio.low <= effect.ratio.value <= effect.ratio.high
        inside = {"better": ratio > 1.02, "worse": ratio < 1 / 1.02, "equivalent": 1 / 1.02 < ratio < 1.02}
        inside |= {"equivalent in these sessions": inside["equivalent"]}
        inside |= {"differs in these sessions": inside["better"] or inside["worse"]}
        assert inside.get(effect.verdict, True)
    for part in found.subsets:
        if part.effect.ratio is not None:
            assert part.effect.ratio.value == pytest.approx(part.ratio, rel=1e-9)


@RANDOM
@given(nodes(), nodes())
def test_every_form_prints_that_ratio_and_the_price_that_follows_from_it(run: Summary, base: Summary) -> None:
    report = reported(run, base)
    (found,) = report.comparisons
    assert found.ratio is not None
    assert found.ratio_per_node == pytest.approx(found.ratio * run.devices / base.devices, rel=1e-12)
    (worth,) = report.price.per_reference
    assert worth.value == pytest.approx(PRICE / (found.ratio * run.devices / base.devices), rel=1e-9)
    if worth.interval is not None:
        assert worth.interval.low <= worth.value <= worth.interval.high
    if report.score is not None and report.score.interval is not None:
        at = report.score.interval
        assert at.low <= (report.score.per_device or 0.0) <= at.high
    told = json.loads(text_of(write_report, report, "json"))
    assert (told["ratio"], told["baseline"]["charged_ratio"]) == (found.ratio, found.charged_ratio)
    for form in ("table", "markdown"):
        for full in (False, True) if form == "table" else (False,):
            text = " ".join(text_of(write_report, report, form, full=full).split())
            assert f"{found.ratio:.3f} per " in text
            assert f"${money(worth.value)} per base-node equivalent" in text
            assert ("perf_ratio_adj" in text) is full
            assert (f"{found.charged_ratio:.3f}; both with penalties" in text) is full
    cells = {row["test"]: row for row in csv.DictReader(io.StringIO(text_of(write_report, report, "csv")))}
    for label in LABELS:
        assert float(cells[label]["perf_ratio"]) == found.rows[label].perf_ratio
        assert cells[label]["verdict"] == found.rows[label].effect.verdict
        assert float(cells[label]["perf_ratio_adj"]) == found.rows[label].perf_ratio_adj


@settings(RANDOM, max_examples=5)
@given(nodes(), nodes())
def test_the_page_shows_it_too(run: Summary, base: Summary) -> None:
    report = reported(run, base)
    page = text_of(write_html, report)
    assert f"{report.comparisons[0].ratio:.3f} per " in page
    assert "perf_ratio_adj" not in page


@RANDOM
@given(st.fixed_dictionaries({name: nodes() for name in "abc"}), nodes(), st.permutations([1.0, 1.1, 2.0]))
def test_bids_are_ordered_by_what_is_printed_of_them(
    bids: Mapping[str, Summary], reference: Summary, prices: list[float]
) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place)
        for name, one in (*bids.items(), ("base", reference)):
            (folder / f"{name}.json").write_text(encode_summary(one))
        offers = {
            name: {"results": f"{name}.json", "price": PRICE * price} for name, price in zip(bids, prices, strict=True)
        }
        (folder / "w.json").write_text(json.dumps({label: {"weight": weight} for label, weight in WEIGHTS.items()}))
        (folder / "bids.json").write_text(
            json.dumps({"reference": "base.json", "bids": offers, "weights": "w.json", "currency": "EUR"})
        )
        made = compare_bids(folder / "bids.json")
    for row in made.rows:
        if row.ratio is None:
            assert row.rank is None
            continue
        assert row.ratio == pytest.approx(reported(bids[row.name], reference).comparisons[0].ratio_per_node, rel=1e-9)
        assert row.per_reference.value == pytest.approx(row.price / row.ratio, rel=1e-12)
    costs = [row.per_reference.value for row in made.rows if row.ratio is not None and row.per_reference]
    ranked = [row for row in made.rows if row.rank is not None]
    known = [row.per_reference.value for row in ranked if row.per_reference]
    assert known == sorted(known)
    assert [row.rank for row in ranked] == sorted(row.rank or 0 for row in ranked)
    unranked = [row.name for row in made.rows if row.rank is None]
    assert unranked == [name for name in bids if name in unranked], "no order but that of the file"
    for form in ("table", "markdown", "csv", "json"):
        text = text_of(write, tender_document(made), form)
        shown = [figure(cost) if form in ("table", "markdown") else repr(cost) for cost in costs]
        places = [text.find(each) for each in shown]
        assert -1 not in places
        if form == "csv":
            cells = [line["price per reference node (EUR)"] for line in csv.DictReader(io.StringIO(text))]
            assert [float(cell) for cell in cells if cell] == costs


@RANDOM
@given(nodes(), nodes())
def test_acceptance_judges_the_ratio_of_the_report(bid: Summary, delivered: Summary) -> None:
    made = accept(bid, delivered, {"standard": WEIGHTS}, 0.97)
    (found,) = reported(delivered, bid).comparisons
    assert made.score.ratio == pytest.approx(found.ratio, rel=1e-9)
    for one in (made.score, *made.tests):
        assert one.ratio is not None
        assert one.verdict != "keeps" or one.ratio >= 0.97
        assert one.verdict != "breaks" or one.ratio < 0.97
        if one.name in found.rows:
            assert one.ratio == pytest.approx(found.rows[one.name].perf_ratio, rel=1e-9)
    assert re.fullmatch("keeps|breaks|inconclusive", made.verdict)

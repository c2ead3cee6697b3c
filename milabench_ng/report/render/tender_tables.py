"""The printed facts and tables of a tender; the format modules lay them out. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.report.procurement.stability import Stability
from milabench_ng.report.procurement.tender import BidRow, Tender
from milabench_ng.report.render.cells import Cell, Fact, Tone, number, one_decimal, text, whole
from milabench_ng.report.render.columns import span
from milabench_ng.report.render.ratio_statements import span_of_money
from milabench_ng.report.render.sections import Heading, Section
from milabench_ng.report.scoring.bands import EstimateBand
from milabench_ng.report.statistics.intervals import Interval
from milabench_ng.report.summary.marked import Marked

_SHOWN = 12


def tender_facts(tender: Tender) -> tuple[Fact, ...]:
    """What to know before reading the table."""
    return tuple(_facts(tender))


def _facts(tender: Tender) -> Iterator[Fact]:
    yield Fact("reference", f"one node of {tender.reference}", "strong")
    yield Fact("ranked by", f"{tender.criterion}, lower is better; equal ranks cannot be told apart")
    yield _ranked_over(tender)
    terms = tender.terms
    if terms is not None:
        yield Fact(
            "assumptions",
            f"{terms.years:g} years, {terms.tariff_per_kwh:g} {tender.currency}/kWh, PUE {terms.pue:g}, "
            f"utilisation {terms.utilization:.0%}",
        )
    if tender.why_unranked:
        yield Fact("ranks", f"nothing is ranked: {tender.why_unranked}", "fair")
    doubts = dict.fromkeys(doubt for row in tender.rows if row.per_reference for doubt in row.per_reference.indicative)
    if doubts:
        yield Fact("indicative", "; ".join(doubts), "fair")
    if tender.stability is not None:
        yield _steady(tender.stability)
    for row in tender.rows:
        for mark in row.marks:
            yield Fact("mark", f"{row.name}: {mark.text}{_where(mark)}", "bad")
    for note in tender.notes:
        yield Fact("note", note, "fair")


def _ranked_over(tender: Tender) -> Fact:
    """The tests that are ranked by, and those that were dropped."""
    unlike = dict.fromkeys(one.test for one in tender.other_work)
    left = [
        f"; not {', '.join(map(_short, tests))}, which {why}"
        for tests, why in ((unlike, "is not the same work in all bids"), (tender.not_in_all, "not every bid has"))
        if tests
    ]
    text = f"{len(tender.tests)} of {tender.of} weighted tests{''.join(left)}"
    return Fact("ranked over", text, "fair" if left else "plain")


def _where(mark: Marked) -> str:
    """The tests and devices that have a mark."""
    devices = f" on device {', '.join(mark.devices)}" if mark.devices else ""
    return f" ({', '.join(map(_short, mark.tests))}{devices})"


def _short(label: str) -> str:
    """A test's name without its suite."""
    return label.partition(".")[2] or label


def _steady(found: Stability) -> Fact:
    lead = f"{found.order[0]} leads {found.order[1]} by {found.lead_pct:.1f} %"
    turning = found.turning
    if not turning:
        return Fact("stability", f"{lead}; none of {len(found.changes)} changes makes another bid first", "good")
    names = ", ".join(change.what for change in turning[:_SHOWN])
    return Fact("stability", f"{lead}; {len(turning)} of {len(found.changes)} changes turn that: {names}", "fair")


def tender_sections(tender: Tender) -> tuple[Section, ...]:
    """The bids, their cost over the years, and the stability of their order."""
    sections = [_bids(tender)]
    if tender.other_work:
        sections.append(_left_out(tender))
    if any(row.owned for row in tender.rows):
        sections.append(_ownership(tender))
    if any(row.nodes is not None for row in tender.rows):
        sections.append(_purchase(tender))
    if tender.stability is not None:
        sections.append(_stability(tender.stability))
    return tuple(sections)


def _bids(tender: Tender) -> Section:
    money = tender.currency
    return Section(
        key="bids",
        title="bids",
        headings=(
            Heading("rank", "", whole, True),
            Heading("bid"),
            Heading("ranked over", "tests", whole, True),
            Heading("marked", tone=lambda cell: "bad" if cell == "marked" else "plain"),
            Heading("devices", "", whole, True),
            Heading("hardware"),
            Heading("score", tone=_status_tone),
            Heading("isolation", tone=lambda cell: "good" if cell == "full" else "bad"),
            Heading("price of a node", money, number, True),
            Heading("ratio to the reference node", "", number, True),
            Heading("95 % interval"),
            Heading("per reference node", money, number, True),
            Heading("95 % interval of it", money),
            Heading("throughput for money", f"{tender.score_unit} per 1000 {money}", number, True),
            Heading("95 % interval of that", f"{tender.score_unit} per 1000 {money}"),
            Heading("Pareto", tone=lambda cell: "good" if cell == "yes" else "faint"),
            Heading("no value or interval because"),
            Heading("marks", tone=lambda _: "bad"),
        ),
        rows=tuple(_bid(row, len(tender.tests)) for row in tender.rows),
        notes=("Pareto: no other bid's node does as much for less money",),
    )


def _bid(row: BidRow, tests: int) -> tuple[Cell, ...]:
    per = row.per_reference
    return (
        row.rank,
        row.name,
        None if row.rank is None else tests,
        "marked" if row.marks else "no",
        row.devices,
        row.hardware,
        row.score_status,
        row.isolation,
        row.price,
        row.ratio,
        span(row.ratio_interval),
        per.value if per else None,
        _money(per.band or per.interval if per else None),
        row.score_per_price.value if row.score_per_price else None,
        _money(row.score_per_price),
        "yes" if row.pareto else "no",
        row.why or None,
        "; ".join(mark.text for mark in row.marks) or None,
    )


def _left_out(tender: Tender) -> Section:
    return Section(
        key="not-the-same-work",
        title="what leaves the ranking: not the same work in all bids",
        headings=(Heading("test"), Heading("bids"), Heading("what differs")),
        rows=tuple((one.test, " and ".join(one.bids), one.why) for one in tender.other_work),
    )


def _money(interval: Interval | EstimateBand | None) -> str | None:
    return span_of_money(interval) if interval else None


def _status_tone(cell: Cell) -> Tone:
    return "good" if cell == "complete" else "bad"


def _ownership(tender: Tender) -> Section:
    money = tender.currency
    years = tender.terms.years if tender.terms else 0
    return Section(
        key="ownership",
        title=f"cost of a node over {years:g} years",
        headings=(
            Heading("bid"),
            Heading("price", money, number, True),
            Heading("energy", "kWh", number, True),
            Heading("energy", money, number, True),
            Heading("maintenance", money, number, True),
            Heading("together", money, number, True),
            Heading("per reference node", money, number, True),
            Heading("energy includes"),
        ),
        rows=tuple(
            (
                row.name,
                owned.price,
                owned.energy_kwh,
                owned.energy,
                owned.maintenance,
                owned.total,
                row.owned_per_reference,
                "what was given" if owned.boundary == "given" else owned.boundary,
            )
            for row in tender.rows
            if (owned := row.owned) is not None
        ),
    )


def _purchase(tender: Tender) -> Section:
    return Section(
        key="purchase",
        title="what is bought",
        headings=(
            Heading("bid"),
            Heading("nodes", "", whole, True),
            Heading("together", "reference nodes", number, True),
            Heading("cost", tender.currency, number, True),
            Heading("cost includes"),
        ),
        rows=tuple(
            (
                row.name,
                row.nodes,
                row.total_ratio,
                row.total_cost,
                "price, energy, maintenance" if row.owned else "price",
            )
            for row in tender.rows
        ),
    )


def _stability(found: Stability) -> Section:
    return Section(
        key="stability",
        title="what the order rests on: each assumption a fifth up and down, each test left out",
        headings=(
            Heading("changed"),
            Heading("first", tone=lambda cell: "plain" if cell == found.order[0] else "bad"),
            Heading("leads by", "%", one_decimal, True),
            Heading("order", "", text, False),
        ),
        rows=tuple(
            (change.what, change.order[0], change.lead_pct, "the same" if change.same else ", ".join(change.order))
            for change in sorted(found.changes, key=lambda change: (change.same_winner, change.same, change.lead_pct))
        ),
    )

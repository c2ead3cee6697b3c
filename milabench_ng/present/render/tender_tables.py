"""The tables of a tender; the format modules lay them out. Pure."""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.scoring.cost import PerReference
from milabench_ng.analysis.scoring.reference import unit_told
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.present.render.as_json import REPORT_SCHEMA
from milabench_ng.present.render.cells import money, number, one_decimal, toned, whole
from milabench_ng.present.render.columns import span
from milabench_ng.present.render.ratio_statements import span_of_money
from milabench_ng.present.render.sections import Column, Document, Facts, Section, section
from milabench_ng.present.render.tender_facts import tender_facts
from milabench_ng.tender.leave_one_out import LeaveOneOut, LeftOutRanks
from milabench_ng.tender.ownership import Ownership
from milabench_ng.tender.stability import Stability
from milabench_ng.tender.tender import BidRow, Tender

_CHARGED = "scores include penalties for variance and failures, as in milabench 2020; they do not affect ranks"
_PARTIAL = "no price per score of a partial score: it is over other tests"
_PARETO = "Pareto: no other bid offers at least this throughput for less money"
_BID: Column[BidRow] = Column("bid", value=lambda row: row.name)
_RANK: Column[BidRow] = Column("rank", "", whole, True, value=lambda row: row.rank)
_RATIO: tuple[Column[BidRow], ...] = (
    Column("ratio to the reference node", "", number, True, value=lambda row: row.ratio),
    Column("95% CI of the ratio", key="95 % interval of the ratio", value=lambda row: span(row.ratio_interval)),
)
_WHY: Column[BidRow] = Column("why no ratio or interval", value=lambda row: row.why or None)
_MEASURED: tuple[Column[BidRow], ...] = (
    Column("hardware", value=lambda row: row.hardware),
    Column("devices", "", whole, True, value=lambda row: row.devices),
    Column("isolation", tone=toned({"full": "good"}, "bad"), value=lambda row: row.isolation),
)
_MARKED: Column[BidRow] = Column(
    "warnings",
    key="marked",
    value=lambda row: "marked" if row.marks else "no",
)
_NODES = "reference nodes"
_MARKS: Column[BidRow] = Column(
    "comparability warnings", key="marks", value=lambda row: "; ".join(mark.text for mark in row.marks) or None
)


def tender_document(tender: Tender) -> Document:
    """In JSON, money is in its ``currency``, and ratios are to one reference node."""
    told = tuple(tender_facts(tender))
    return Document(
        title="mnb bids",
        parts=(Facts(facts=told), *tender_sections(tender)),
        aside=told,
        table=bids_section(tender),
        whole={"schema": REPORT_SCHEMA, **msgspec.structs.asdict(tender)},
    )


def tender_sections(tender: Tender) -> tuple[Section, ...]:
    """The bids, what they offer, their cost, the stability of their order; of several suites, side by side first."""
    if not tender.further:
        return _sections(tender)
    parts = (
        msgspec.structs.replace(part, key=f"{part.key}-{one.suite}", title=f"{part.title}, {one.suite}")
        for one in tender.each
        for part in _sections(one)
    )
    return (_side_by_side(tender), *parts)


def _side_by_side(tender: Tender, *further: Column[BidRow]) -> Section:
    """Each bid with what decides in each suite, and ``further`` columns of each."""
    return section(
        "bids",
        f"bids by {' and by '.join(one.suite for one in tender.each)}",
        tender.rows,
        _BID,
        *(_in_suite(one, column) for one in tender.each for column in (*_brief(one), *further)),
        Column("price of a node", tender.currency, number, True, value=lambda row: row.price),
        Column("hardware", value=lambda row: row.hardware),
        Column("devices", "", whole, True, value=lambda row: row.devices),
    )


def _in_suite(tender: Tender, column: Column[BidRow]) -> Column[BidRow]:
    """``column`` of the row that a bid has in ``tender``."""
    rows = {row.name: row for row in tender.rows}
    return msgspec.structs.replace(
        column,
        title=f"{tender.suite}: {column.title}",
        key=f"{tender.suite}: {column.name}",
        value=lambda row: column.value(rows[row.name]),
    )


def _brief(tender: Tender) -> tuple[Column[BidRow], ...]:
    criterion, *_ = _ranked_by(tender)
    score, *_ = _scores(tender)
    return (_RANK, criterion, *_RATIO, score)


def _sections(tender: Tender) -> tuple[Section, ...]:
    """What there is to say of the bids in one suite."""
    sections = [
        _ranks(tender),
        section("offered", "throughput and price of a node", tender.rows, _BID, *_offered(tender)),
        section("scores", "scores", tender.rows, _BID, *_scores(tender), notes=_on_scores(tender)),
        section("measured", "measurement conditions", tender.rows, _BID, *_MEASURED),
    ]
    if tender.other_work:
        sections.append(_left_out(tender))
    if any(row.owned for row in tender.rows):
        sections.append(_ownership(tender))
    if any(row.nodes is not None for row in tender.rows):
        sections.append(_purchase(tender))
    if tender.leave_one_out is not None and tender.leave_one_out.moving:
        sections.append(_without_one(tender.leave_one_out))
    if tender.stability is not None and not all(change.same for change in tender.stability.changes):
        sections.append(_stability(tender.stability))
    return tuple(msgspec.structs.replace(one, sparse=True) for one in sections)


def _ranks(tender: Tender) -> Section:
    """What decides; nothing that looks like an order where nothing is ranked."""
    if not tender.ranked:
        title = "bids, in the order of their file"
        return section("bids", title, tender.rows, _BID, *_ranked_by(tender))
    return section("bids", "bids", tender.rows, _BID, *_deciding(tender), _pareto(tender), notes=(_PARETO,))


def bids_section(tender: Tender) -> Section:
    """All that is known of each bid, in one table; of several suites, what decides in each."""
    if tender.further:
        return _side_by_side(tender, _WHY, _MARKED, _MARKS)
    columns = (
        _BID,
        *_deciding(tender),
        _MARKED,
        _pareto(tender),
        *_offered(tender),
        *_scores(tender),
        *_MEASURED,
        _MARKS,
    )
    return section("bids", "bids", tender.rows, *columns)


def _deciding(tender: Tender) -> tuple[Column[BidRow], ...]:
    """The rank, and beside it what the bids are ranked by."""
    return (_RANK, *_ranked_by(tender))


def _pareto(tender: Tender) -> Column[BidRow]:
    """Empty where nothing is ranked."""
    words = {True: "yes", False: "no"} if tender.ranked else {}
    return Column("Pareto", tone=toned({"yes": "good"}, "faint"), value=lambda row: words.get(row.pareto))


def _ranked_by(tender: Tender) -> tuple[Column[BidRow], ...]:
    return _years_columns(tender) if tender.by_ownership else _price_columns(tender)


def _price_columns(tender: Tender) -> tuple[Column[BidRow], ...]:
    money = tender.currency
    return (
        Column("price per reference node", money, number, True, value=lambda row: _value(row.per_reference)),
        Column(
            "95% CI of that price",
            money,
            key=f"95 % interval of that price ({money})",
            value=lambda row: _money(row.per_reference.interval if row.per_reference else None),
        ),
    )


def _years_columns(tender: Tender) -> tuple[Column[BidRow], ...]:
    money = tender.currency
    return (
        Column("cost per reference node", money, number, True, value=lambda row: row.owned_per_reference),
        Column(
            "95% CI of that cost",
            money,
            key=f"95 % interval of that cost ({money})",
            value=lambda row: _money(row.owned_interval),
        ),
    )


def _offered(tender: Tender) -> tuple[Column[BidRow], ...]:
    return (
        Column("price of a node", tender.currency, number, True, value=lambda row: row.price),
        *(_price_columns(tender) if tender.by_ownership else ()),
        *_RATIO,
        *((_WHY,) if any(row.why for row in tender.rows) else ()),
    )


def _scores(tender: Tender) -> tuple[Column[BidRow], ...]:
    tests = len(tender.tests)
    unit = unit_told(tender.score_unit).removesuffix("s") if tests == tender.of else tender.score_unit
    return (
        Column("score", tone=toned({"complete": "good"}, "bad"), value=lambda row: row.score_status),
        Column("ranked over", "tests", whole, True, value=lambda row: None if row.rank is None else tests),
        Column(
            "price per score, as in milabench 2020",
            f"{tender.currency} per {unit}",
            number,
            True,
            key=f"price per score, as in 2020 ({tender.currency} per {unit})",
            value=lambda row: row.price_per_point,
        ),
    )


def _on_scores(tender: Tender) -> tuple[str, ...]:
    return (_CHARGED, *([_PARTIAL] if any(row.score_status == "partial" for row in tender.rows) else ()))


def _left_out(tender: Tender) -> Section:
    return section(
        "not-the-same-work",
        "Tests excluded (workload differs between bids)",
        tender.other_work,
        Column("test", value=lambda one: one.test),
        Column("bids", value=lambda one: " and ".join(one.bids)),
        Column("what differs", value=lambda one: one.why),
    )


def _value(known: PerReference | None) -> float | None:
    return None if known is None else known.value


def _money(interval: Interval | None) -> str | None:
    return span_of_money(interval) if interval else None


def _ownership(tender: Tender) -> Section:
    money = tender.currency
    years = tender.terms.years if tender.terms else 0
    return section(
        "ownership",
        f"cost of a node over {years:g} years",
        [row for row in tender.rows if row.owned is not None],
        _BID,
        Column("price", money, number, True, value=lambda row: row.price),
        Column("energy", "kWh", number, True, value=lambda row: _owned(row).energy_kwh),
        Column("energy", money, number, True, value=lambda row: _owned(row).energy),
        Column("maintenance", money, number, True, value=lambda row: _owned(row).maintenance),
        Column("total", money, number, True, key=f"together ({money})", value=lambda row: _owned(row).total),
        *(() if tender.by_ownership else _years_columns(tender)),
        Column(
            "energy includes",
            value=lambda row: "what was given" if _owned(row).boundary == "given" else _owned(row).boundary,
        ),
    )


def _owned(row: BidRow) -> Ownership:
    assert row.owned is not None
    return row.owned


def _purchase(tender: Tender) -> Section:
    budget = (
        f": a budget of {money(tender.budget)} {tender.currency} for the prices of the nodes" if tender.budget else ""
    )
    return section(
        "purchase",
        f"purchase{budget}",
        tender.rows,
        Column("bid", value=lambda row: row.name),
        Column("nodes", "", whole, True, value=lambda row: row.nodes),
        Column("total", _NODES, number, True, key=f"together ({_NODES})", value=lambda row: row.total_ratio),
        Column("cost", tender.currency, number, True, value=lambda row: row.total_cost),
        Column("cost includes", value=lambda row: "price, energy, maintenance" if row.owned else "price"),
    )


def _without_one(found: LeaveOneOut) -> Section:
    """The rank of each bid over all tests, and without what changes the ranks."""
    calm = len(found.without) - len(found.moving)
    return section(
        "left-out",
        "ranks without one test or one group (leave-one-out)",
        (found.whole, *found.moving),
        Column("left out", value=lambda one: name_of_row(one.what) or "nothing"),
        *(_rank_column(name) for name in found.whole.ranks),
        notes=(f"{calm} of {len(found.without)} leave the ranks unchanged; rates are used without significance",),
    )


def _rank_column(name: str) -> Column[LeftOutRanks]:
    return Column(f"rank of {name}", "", whole, True, value=lambda one: one.ranks[name])


def _stability(found: Stability) -> Section:
    """The changes that change the order; of the others only their number."""
    turning = [change for change in found.changes if not change.same]
    calm = len(found.changes) - len(turning)
    return section(
        "stability",
        "Sensitivity: each weight and assumption ±20%",
        sorted(turning, key=lambda change: (change.same_winner, change.lead_pct)),
        Column("changed", value=lambda change: change.what),
        Column("first", tone=toned({found.order[0]: "plain"}, "bad"), value=lambda change: change.order[0]),
        Column("leads by", "%", one_decimal, True, value=lambda change: change.lead_pct),
        Column("order", value=lambda change: ", ".join(change.order)),
        notes=(f"{calm} of {len(found.changes)} changes leave the order unchanged",),
    )

"""The printed facts and tables of a tender; the format modules lay them out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from milabench_ng.report.procurement.leave_one_out import LeaveOneOut, LeftOutRanks
from milabench_ng.report.procurement.other_machine import GPU_STD, HOST_STD
from milabench_ng.report.procurement.stability import Stability
from milabench_ng.report.procurement.tender import Tender
from milabench_ng.report.render.cells import Cell, Fact, Tone, number, one_decimal, unit_told, whole
from milabench_ng.report.render.columns import span
from milabench_ng.report.render.ratio_statements import span_of_money
from milabench_ng.report.render.sections import Column, Section, section
from milabench_ng.report.scoring.bands import EstimateBand
from milabench_ng.report.scoring.cost import PerReference
from milabench_ng.report.statistics.intervals import SESSIONS_FROM, Interval
from milabench_ng.report.summary.marked import Marked

_SHOWN = 12


def tender_facts(tender: Tender) -> tuple[Fact, ...]:
    """What to know before reading the table."""
    return tuple(_facts(tender))


def _facts(tender: Tender) -> Iterator[Fact]:
    yield Fact("reference", f"one node of {tender.reference}", "strong")
    yield Fact("ranked by", f"{tender.criterion}, lower is better; equal ranks cannot be told apart")
    yield from (Fact("refused", f"{name}: {why}", "bad") for name, why in tender.refused.items())
    for name, verdict in tender.verdicts.items():
        yield Fact("verified", f"{name}: {verdict}", "plain" if verdict.startswith("PASS") else "fair")
    yield _ranked_over(tender)
    terms = tender.terms
    if terms is not None:
        yield Fact(
            "assumptions",
            f"{terms.years:g} years, {terms.tariff_per_kwh:g} {tender.currency}/kWh, PUE {terms.pue:g}, "
            f"utilisation {terms.utilization:.0%}",
        )
    if tender.declared:
        yield Fact(
            "sessions",
            f"fewer than {SESSIONS_FROM} from {', '.join(tender.declared)}, so intervals and ranks include "
            f"{100 * GPU_STD:g} % between machines in tests that the GPU bounds and {100 * HOST_STD:g} % in others; "
            f"mnb jobs PROFILE --sessions {SESSIONS_FROM} measures it",
            "fair",
        )
    if tender.why_unranked:
        nobody = all(row.rank is None for row in tender.rows)
        yield Fact("ranks", f"{'nothing is ranked' if nobody else 'not ranked'}: {tender.why_unranked}", "fair")
    doubts = dict.fromkeys(doubt for row in tender.rows if row.per_reference for doubt in row.per_reference.indicative)
    if doubts:
        yield Fact("indicative", "; ".join(doubts), "fair")
    if tender.leave_one_out is not None:
        yield _kept(tender.leave_one_out)
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
    fewer = len(tender.compared) < len(tender.tests)
    ratios = f"; ratios to the reference over {len(tender.compared)}" if fewer else ""
    text = f"{len(tender.tests)} of {tender.of} weighted tests{''.join(left)}{ratios}"
    return Fact("ranked over", text, "fair" if left or fewer else "plain")


def _where(mark: Marked) -> str:
    """The tests and devices that have a mark."""
    devices = f" on device {', '.join(mark.devices)}" if mark.devices else ""
    return f" ({', '.join(map(_short, mark.tests))}{devices})"


def _short(label: str) -> str:
    """A test's name without its suite."""
    return label.partition(".")[2] or label


def _kept(found: LeaveOneOut) -> Fact:
    """How many rankings without one test or group keep the winner; none is made of a single test."""
    of, others = len(found.without), [one for one in found.without if one.winners != found.whole.winners]
    if not of:
        return Fact("left out", "nothing can be: the ranking is over one test", "faint")
    first = " and ".join(sorted(found.whole.winners))
    names = ", ".join(
        f"without {_short(one.what)} {' and '.join(sorted(one.winners))} is first" for one in others[:_SHOWN]
    )
    text = f"{found.kept} of {of} rankings without one test or group keep {first} first{f'; {names}' if names else ''}"
    return Fact("left out", text, "fair" if others else "good")


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
    if tender.leave_one_out is not None and tender.leave_one_out.without:
        sections.append(_without_one(tender.leave_one_out))
    if tender.stability is not None and not all(change.same for change in tender.stability.changes):
        sections.append(_stability(tender.stability))
    return tuple(sections)


def _bids(tender: Tender) -> Section:
    money, tests = tender.currency, len(tender.tests)
    unit = unit_told(tender.score_unit) if tests == tender.of else tender.score_unit
    per_money = f"{unit} per 1000 {money}"
    return section(
        "bids",
        "bids",
        tender.rows,
        Column("bid", value=lambda row: row.name),
        Column("rank", "", whole, True, value=lambda row: row.rank),
        Column("marked", tone=_toned("marked", "bad", "plain"), value=lambda row: "marked" if row.marks else "no"),
        Column("per reference node", money, number, True, value=lambda row: _value(row.per_reference)),
        Column(
            "95 % interval of it",
            money,
            value=lambda row: _money(row.per_reference.known if row.per_reference else None),
        ),
        Column("price of a node", money, number, True, value=lambda row: row.price),
        Column("ratio to the reference node", "", number, True, value=lambda row: row.ratio),
        Column("95 % interval", value=lambda row: span(row.ratio_interval)),
        Column("score", tone=_toned("complete", "good", "bad"), value=lambda row: row.score_status),
        Column("isolation", tone=_toned("full", "good", "bad"), value=lambda row: row.isolation),
        Column("hardware", value=lambda row: row.hardware),
        Column("devices", "", whole, True, value=lambda row: row.devices),
        Column("ranked over", "tests", whole, True, value=lambda row: None if row.rank is None else tests),
        Column("throughput for money", per_money, number, True, value=lambda row: _value(row.score_per_price)),
        Column("95 % interval of that", per_money, value=lambda row: _money(row.score_per_price)),
        Column("Pareto", tone=_toned("yes", "good", "faint"), value=lambda row: "yes" if row.pareto else "no"),
        Column("no value or interval because", value=lambda row: row.why or None),
        Column("marks", tone=lambda _: "bad", value=lambda row: "; ".join(mark.text for mark in row.marks) or None),
        notes=("Pareto: no other bid's node does as much for less money",),
    )


def _left_out(tender: Tender) -> Section:
    return section(
        "not-the-same-work",
        "what leaves the ranking: not the same work in all bids",
        tender.other_work,
        Column("test", value=lambda one: one.test),
        Column("bids", value=lambda one: " and ".join(one.bids)),
        Column("what differs", value=lambda one: one.why),
    )


def _toned(word: str, then: Tone, otherwise: Tone) -> Callable[[Cell], Tone]:
    return lambda cell: then if cell == word else otherwise


def _value(known: PerReference | Interval | None) -> float | None:
    return None if known is None else known.value


def _money(interval: Interval | EstimateBand | None) -> str | None:
    return span_of_money(interval) if interval else None


def _ownership(tender: Tender) -> Section:
    money = tender.currency
    years = tender.terms.years if tender.terms else 0
    return section(
        "ownership",
        f"cost of a node over {years:g} years",
        [(row, row.owned) for row in tender.rows if row.owned is not None],
        Column("bid", value=lambda item: item[0].name),
        Column("price", money, number, True, value=lambda item: item[1].price),
        Column("energy", "kWh", number, True, value=lambda item: item[1].energy_kwh),
        Column("energy", money, number, True, value=lambda item: item[1].energy),
        Column("maintenance", money, number, True, value=lambda item: item[1].maintenance),
        Column("together", money, number, True, value=lambda item: item[1].total),
        Column("per reference node", money, number, True, value=lambda item: item[0].owned_per_reference),
        Column("95 % interval of it", money, value=lambda item: _money(item[0].owned_interval)),
        Column(
            "energy includes",
            value=lambda item: "what was given" if item[1].boundary == "given" else item[1].boundary,
        ),
    )


def _purchase(tender: Tender) -> Section:
    return section(
        "purchase",
        "what is bought",
        tender.rows,
        Column("bid", value=lambda row: row.name),
        Column("nodes", "", whole, True, value=lambda row: row.nodes),
        Column("together", "reference nodes", number, True, value=lambda row: row.total_ratio),
        Column("cost", tender.currency, number, True, value=lambda row: row.total_cost),
        Column("cost includes", value=lambda row: "price, energy, maintenance" if row.owned else "price"),
    )


def _without_one(found: LeaveOneOut) -> Section:
    """The rank of each bid over all tests, and without each test or group."""
    ranked = (found.whole, *found.without)
    return section(
        "left-out",
        "ranks without one of the tests, or one group of them",
        ranked,
        Column("left out", value=lambda one: _short(one.what) or "nothing"),
        *(_rank_column(name) for name in found.whole.ranks),
        notes=(f"{found.kept} of {len(found.without)} keep the winner; rates as they are, without significance",),
    )


def _rank_column(name: str) -> Column[LeftOutRanks]:
    return Column(f"rank of {name}", "", whole, True, value=lambda one: one.ranks[name])


def _stability(found: Stability) -> Section:
    """The changes that change the order; of the others only their number."""
    turning = [change for change in found.changes if not change.same]
    calm = len(found.changes) - len(turning)
    return section(
        "stability",
        "what the order rests on: each assumption a fifth up and down, each test left out",
        sorted(turning, key=lambda change: (change.same_winner, change.lead_pct)),
        Column("changed", value=lambda change: change.what),
        Column("first", tone=_toned(found.order[0], "plain", "bad"), value=lambda change: change.order[0]),
        Column("leads by", "%", one_decimal, True, value=lambda change: change.lead_pct),
        Column("order", value=lambda change: ", ".join(change.order)),
        notes=(f"{calm} of {len(found.changes)} changes leave the order as it is",),
    )

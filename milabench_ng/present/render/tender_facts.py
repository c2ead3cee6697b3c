"""What to know of a tender before reading its tables. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from milabench_ng.analysis.scoring.other_machine import GPU_DAY_STD, GPU_STD, HOST_DAY_STD, HOST_STD
from milabench_ng.analysis.statistics.intervals import RANKED_FROM, SESSIONS_FROM
from milabench_ng.analysis.summary.marked import Marked
from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.present.render.cells import Answer, Fact, figure
from milabench_ng.present.render.ratio_statements import span_of_money
from milabench_ng.tender.leave_one_out import LeaveOneOut
from milabench_ng.tender.stability import Stability
from milabench_ng.tender.tender import BidRow, Tender

_SHOWN = 12


def tender_facts(tender: Tender) -> tuple[Fact, ...]:
    """What to know before reading the table; what is not so in all suites is told of each."""
    told = [(one.suite, fact) for one in tender.each for fact in dict.fromkeys(_facts(one))]
    times = Counter(fact for _, fact in told)
    found = (
        fact if times[fact] == len(tender.each) else Fact(f"{fact.name}, {suite}", fact.text, fact.tone)
        for suite, fact in told
    )
    ranked_by, following, reference, *rest = dict.fromkeys(found)
    return (ranked_by, following, reference, *_verdicts(tender), *rest)


def winner(tender: Tender, *, several: bool) -> Answer:
    """Who is first, at which cost, and how sure that is. ``several``: whether to name the suite."""
    name = f"Winner by {tender.suite}" if several else "Winner"
    first = [row for row in tender.rows if row.rank == 1]
    if not first:
        return Answer(name=name, parts=("none", f"nothing is ranked: {tender.why_unranked}"), tone="fair")
    marked = [row.name for row in first if row.marks]
    parts = [" and ".join(row.name for row in first), *(_at_cost(row, tender) for row in first)]
    if len(first) > 1:
        parts.append("no certain order between them")
    if marked:
        parts.append(f"{' and '.join(marked)}: marked, see below")
    return Answer(name=name, parts=tuple(parts), tone="fair" if len(first) > 1 or marked else "good")


def _at_cost(row: BidRow, tender: Tender) -> str:
    """What a reference node's worth costs with a bid."""
    price = row.per_reference
    value, known = (
        (row.owned_per_reference, row.owned_interval)
        if tender.by_ownership
        else ((price.value, price.interval) if price else (None, None))
    )
    span = f" ({span_of_money(known)})" if known else ""
    return f"{row.name}: {figure(value)} {tender.currency}{span}, {tender.criterion}" if value is not None else row.name


def _verdicts(tender: Tender) -> Iterator[Fact]:
    """What verification said."""
    yield from (Fact("refused", f"{name}: {why}", "bad") for name, why in tender.refused.items())
    for verdict in dict.fromkeys(tender.verdicts.values()):
        bidders = ", ".join(name for name, other in tender.verdicts.items() if other == verdict)
        yield Fact("verified", f"{bidders}: {verdict}", "plain" if verdict.startswith("PASS") else "fair")


def _facts(tender: Tender) -> Iterator[Fact]:
    yield _ranks(tender)
    yield Fact("next", _step(tender), "strong")
    yield Fact("reference", f"one node of {tender.reference}; prices are for as much throughput as it has")
    yield _ranked_over(tender)
    terms = tender.terms
    if terms is not None:
        yield Fact(
            "assumptions",
            f"{terms.years:g} years, {terms.tariff_per_kwh:g} {tender.currency}/kWh, PUE {terms.pue:g}, "
            f"utilization {terms.utilization:.0%}",
        )
    if any(row.ratio_interval for row in tender.rows):
        yield _machines()
    if tender.why_unranked and tender.ranked:
        yield Fact("ranks", f"not ranked: {tender.why_unranked}", "fair")
    known = [row.per_reference for row in tender.rows if row.per_reference]
    doubts = dict.fromkeys(doubt for one in known for doubt in (one.partial, *one.indicative) if doubt)
    if doubts:
        yield Fact("indicative", "; ".join(doubts), "fair")
    if tender.leave_one_out is not None:
        yield _kept(tender.leave_one_out)
    if tender.stability is not None:
        yield _steady(tender.stability)
    for row in tender.rows:
        for mark in row.marks:
            if mark.text not in tender.verdicts.get(row.name, ""):
                yield Fact("mark", f"{row.name}: {mark.text}{_where(mark)}", "bad")
    for note in tender.notes:
        yield Fact("note", note, "fair")


def _machines() -> Fact:
    return Fact(
        "machines",
        f"intervals and ranks include a machine-to-machine variation of {100 * GPU_STD:g}% in GPU-bound tests "
        f"and {100 * HOST_STD:g}% in others. With fewer than {SESSIONS_FROM} sessions, they also include "
        f"{100 * GPU_DAY_STD:g}% and {100 * HOST_DAY_STD:g}% between days",
    )


def _ranks(tender: Tender) -> Fact:
    """What the bids are ranked by, or why none is."""
    if not tender.ranked:
        return Fact("ranks", f"nothing is ranked: {tender.why_unranked}", "fair")
    return Fact("ranked by", f"{tender.criterion}, lower is better; equal ranks have no certain order")


def _step(tender: Tender) -> str:
    """The first thing that is in the way of a ranking, whatever else is mended: a refused bid, bids that cannot be
    ranked, the reference, or the measurements."""
    if tender.ranked:
        return "once the winner has delivered: mnb accept BUNDLE FOLDER, with the results of the delivered node"
    if tender.refused and len(tender.rows) < 2:
        return f"have {' and '.join(tender.refused)} mend what is refused, and run this again"
    if all(row.score_status == "none" for row in tender.rows):
        return f'name "weights" in the bids file, a file of weights for the tests of {tender.suite}'
    unfit = [row.name for row in tender.rows if not row.fit]
    if 1 < len(tender.rows) < len(unfit) + 2:
        return f"ask {' and '.join(unfit)} for a new run: mnb jobs {tender.profile} --repeat {RANKED_FROM}"
    if not tender.tests and tender.not_in_reference:
        return (
            'name another "reference" in the bids file: results of the same work as the bids, such as those of '
            f"{tender.rows[0].name}"
        )
    if len(tender.rows) < 2:
        return "name a second bid in the bids file: one alone has no rank"
    bidders = "all bidders, also the refused," if tender.refused else "all bidders"
    return f"ask {bidders} for a new run: mnb jobs {tender.profile} --repeat {RANKED_FROM}"


def _ranked_over(tender: Tender) -> Fact:
    """The tests that are ranked by, and those that were dropped."""
    unlike = dict.fromkeys(one.test for one in tender.other_work)
    left = [
        f"; {why}: {', '.join(map(name_of_row, tests))}"
        for tests, why in (
            (unlike, "other work from bid to bid"),
            (tender.not_in_all, "not in every bid"),
            (tender.not_in_reference, "not in the reference, or other work there"),
        )
        if tests
    ]
    text = f"{len(tender.tests)} of {tender.of} weighted tests{''.join(left)}"
    return Fact("ranked over" if tender.ranked else "ratios over", text, "fair" if left else "plain")


def _where(mark: Marked) -> str:
    """The tests and devices that have a mark."""
    devices = f" on device {', '.join(mark.devices)}" if mark.devices else ""
    return f" ({', '.join(map(name_of_row, mark.tests))}{devices})"


def _kept(found: LeaveOneOut) -> Fact:
    """How many rankings without one test or group keep the winner; none is made of a single test."""
    of, others = len(found.without), [one for one in found.without if one.winners != found.whole.winners]
    if not of:
        return Fact("left out", "not possible: the ranking has only one test", "faint")
    first = " and ".join(sorted(found.whole.winners))
    names = ", ".join(
        f"without {name_of_row(one.what)} {' and '.join(sorted(one.winners))} is first" for one in others[:_SHOWN]
    )
    text = f"leave-one-out: {first} stays first in {found.kept} of {of} rankings{f'; {names}' if names else ''}"
    return Fact("left out", text, "fair" if others else "good")


def _steady(found: Stability) -> Fact:
    lead = f"{found.order[0]} leads {found.order[1]} by {found.lead_pct:.1f}%"
    turning = found.turning
    if not turning:
        return Fact("stability", f"{lead}; none of {len(found.changes)} changes puts another bid first", "good")
    names = ", ".join(change.what for change in turning[:_SHOWN])
    return Fact(
        "stability", f"{lead}; {len(turning)} of {len(found.changes)} changes put another bid first: {names}", "fair"
    )

"""Comparison of bids: what a reference node's worth of throughput costs with each, and how certain that is. Pure.

Every node is measured in nodes of one reference. The bids are ranked by what one of those costs: bid A ranks before bid
B if the difference of their logarithms is significant (Welch, with Holm's adjustment over all pairs); bids that cannot
be told apart share a rank. There is no margin: a rank says which is cheaper, not by how much, and of two offers the one
to buy is the one that is certainly cheaper, even if by 1 %. All bids are ranked, compared and varied over the same
tests, those that are the same work in all bids (`same_work`) and in the reference, with the weights of the tender.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from milabench_ng.analysis.scoring.comparison import Comparison
from milabench_ng.analysis.scoring.cost import PerReference, Price, cost
from milabench_ng.analysis.scoring.other_machine import machine_variance, predicted_interval
from milabench_ng.analysis.scoring.weights import Groups, Weights, planned_weights, weights_over
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.power import power_doubts
from milabench_ng.report.report import Report
from milabench_ng.tender.bids import Bid, Bids
from milabench_ng.tender.leave_one_out import leave_one_out
from milabench_ng.tender.ownership import NodePower, Ownership, Terms, ownership
from milabench_ng.tender.ranking import (
    pareto_set,
    rank,
    ratio_of,
    reference_of,
    scored_rows,
    why_unfit,
)
from milabench_ng.tender.same_work import OtherWork
from milabench_ng.tender.stability import Worth, stability
from milabench_ng.tender.tender import BidRow, Tender


def evaluate(
    bids: Bids,
    reports: Mapping[str, Report],
    weights: Weights,
    apart: tuple[OtherWork, ...],
    shared: Sequence[str],
    tests: Sequence[str],
    groups: Groups,
) -> Tender:
    """Rank ``bids`` over ``tests``; ``reports`` are on their results, each compared with the reference only.

    ``weights`` are those of the tender, ``apart`` the weighted tests that are not the same work in all bids: the
    reports give them no weight, as long as any others remain. ``shared``: the tests that every bid has, of which the
    reference may lack some. ``groups``: the tests' groups in the weights.
    """
    powers = {name: power_of(bid, reports[name], bids.terms) for name, bid in bids.bids.items()}
    owned = _owned(bids, powers)
    by_ownership = len(owned) == len(bids.bids) and len({one.boundary for one in owned.values()}) == 1
    costs = {name: owned[name].total if by_ownership else bid.price for name, bid in bids.bids.items()}
    shares, fit = weights_over(weights, tests), [name for name in bids.bids if not why_unfit(reports[name])]
    ranks, why = rank(reports, costs, shares)
    done = {name: ratio for name in fit if (ratio := ratio_of(reports[name])) is not None}
    pareto = pareto_set({name: (costs[name], done.get(name)) for name in bids.bids})
    known = {name: _known(reports[name], shares) for name in done}
    rows = [
        _row(name, bid, reports[name], owned.get(name), bids, known.get(name), ranks.get(name), name in pareto)
        for name, bid in bids.bids.items()
    ]
    worths = [
        worth(name, bids.bids[name], reports[name], powers[name] if by_ownership else None, shares) for name in done
    ]
    terms = bids.terms if by_ownership else None
    unlike = {one.test for one in apart}
    planned = dict.fromkeys(label for at in reports.values() for label in planned_weights(weights, at.summary))
    first = next(iter(reports.values()))
    return Tender(
        suite=first.summary.suite,
        reference=bids.reference,
        score_unit=first.score_unit,
        currency=bids.currency,
        budget=bids.budget,
        terms=bids.terms,
        rows=tuple(sorted(rows, key=lambda row: _order(row, costs[row.name], done.get(row.name)))),
        criterion=f"cost over {bids.years:g} years per reference node" if by_ownership else "price per reference node",
        by_ownership=by_ownership,
        why_unranked=why,
        tests=tuple(tests),
        of=len(planned),
        other_work=apart,
        not_in_all=tuple(label for label in planned if label not in shared and label not in unlike),
        not_in_reference=tuple(label for label in shared if label not in tests),
        leave_one_out=leave_one_out(worths, terms, groups) if ranks and len(worths) > 1 else None,
        stability=stability(worths, terms) if ranks and len(worths) > 1 else None,
        notes=tuple(_notes(bids, owned, reports)),
    )


def _owned(bids: Bids, powers: Mapping[str, NodePower | None]) -> dict[str, Ownership]:
    """What the bids cost over the years, by name: those whose power is known, if the tender asks for it."""
    return {
        name: ownership(bids.bids[name].price, power, bids.bids[name].maintenance_per_year, bids.terms)
        for name, power in powers.items()
        if power is not None and bids.terms is not None
    }


def power_of(bid: Bid, report: Report, terms: Terms | None) -> NodePower | None:
    """The power given for a node, else that of its GPUs in the launches that used all devices at once."""
    if bid.watts_load is not None:
        return NodePower(load_w=bid.watts_load, idle_w=bid.watts_idle or 0.0, boundary="given")
    together = [line for line in report.lines if line.row.devices == report.summary.devices]
    known = [(line.row.power_w, line.scored.weight) for line in together if line.row.power_w is not None]
    weights = [weight or 0.0 for _, weight in known]
    if not known or not sum(weights) or (terms is not None and terms.utilization < 1):
        return None
    mean = sum((power or 0.0) * weight for (power, _), weight in zip(known, weights, strict=True)) / sum(weights)
    return NodePower(load_w=mean * report.summary.devices, idle_w=0.0, boundary="GPUs only, measured")


def worth(name: str, bid: Bid, report: Report, power: NodePower | None, weights: Weights) -> Worth:
    """What one bid contributes to the order, over the tests in ``weights``."""
    rows = scored_rows(report)
    return Worth(
        name=name,
        logs={label: rows[label].log_throughput or 0.0 for label in weights},
        weights=dict(weights),
        devices=report.summary.devices,
        price=bid.price,
        power=power,
        maintenance_per_year=bid.maintenance_per_year,
    )


def _known(report: Report, shares: Weights) -> Interval | None:
    """The interval of a bid's ratio to the reference, for any machine and session of its kind."""
    other = reference_of(report)
    if other is None or other.node_interval is None:
        return None
    return predicted_interval(other.node_interval, machine_variance(scored_rows(report), shares))


def _row(
    name: str,
    bid: Bid,
    report: Report,
    owned: Ownership | None,
    bids: Bids,
    known: Interval | None,
    rank: int | None,
    pareto: bool,
) -> BidRow:
    ratio, other, score = ratio_of(report), reference_of(report), report.score
    price = cost(bid.price, "node", score, report.summary.devices, report.comparisons)
    nodes = bids.nodes if bids.budget is None else int(bids.budget // bid.price)
    per_node = owned.total if owned else bid.price
    return BidRow(
        name=name,
        hardware=report.summary.provenance.hardware,
        devices=report.summary.devices,
        score_status=score.status if score else "none",
        fit=not why_unfit(report),
        isolation=report.isolation,
        failure_rate=report.failure_rate.rate,
        price=bid.price,
        ratio=ratio,
        ratio_interval=known,
        why=why_unfit(report) or _why(other),
        per_reference=_per_reference(price, known) if ratio is not None else None,
        price_per_point=price.rpp,
        owned=owned,
        owned_per_reference=owned.total / ratio if owned and ratio else None,
        owned_interval=known.scaled(1 / owned.total).inverse if owned and known else None,
        nodes=nodes,
        total_ratio=None if nodes is None or ratio is None else nodes * ratio,
        total_cost=None if nodes is None else nodes * per_node,
        rank=rank,
        pareto=pareto,
        marks=report.marks,
    )


def _per_reference(price: Price, known: Interval | None) -> PerReference | None:
    """What a reference node's worth costs, with the range of the ratio."""
    made = price.per_reference[0] if price.per_reference else None
    if made is None or known is None:
        return made
    return msgspec.structs.replace(made, interval=known.scaled(1 / price.per_node).inverse)


def _why(other: Comparison | None) -> str:
    if other is None or other.ratio is None:
        return "no weighted test is comparable with the other bids and the reference"
    return other.effect.why


def _order(row: BidRow, cost: float, done: float | None) -> tuple[float, float]:
    """The sort key: best first; those without a rank last, in the order of the bids file."""
    return (row.rank, cost / done) if row.rank and done else (math.inf, 0.0)


def _notes(bids: Bids, owned: Mapping[str, Ownership], reports: Mapping[str, Report]) -> list[str]:
    notes = []
    if bids.terms is None:
        notes.append("energy is not counted, because tariff_per_kwh is not given")
    else:
        lacking = [name for name in bids.bids if name not in owned]
        if lacking:
            notes.append(
                f"ranked by price, not by cost over the years: the power of {', '.join(lacking)} is unknown "
                "(give watts_load and watts_idle)"
            )
        partly = [name for name, one in owned.items() if one.boundary != "given"]
        if partly:
            mixed = len(partly) < len(owned)
            notes.append(
                f"energy of {', '.join(partly)} covers only the GPUs, not the rest of the node"
                + (", unlike the other bids, so ranks are by price (give watts_load to compare alike)" if mixed else "")
            )
        for name in partly:
            rows = {line.scored.test: line.row for line in reports[name].lines}
            notes += [f"the power of {name} {doubt}" for doubt in power_doubts(rows)]
    return notes

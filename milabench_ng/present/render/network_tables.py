"""What is told of the network between nodes: a statement, and tables of slow links and of rings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from milabench_ng.fleet.network.judging import LINK_STATES
from milabench_ng.fleet.network.launches import OverNodesReport
from milabench_ng.fleet.network.report import LinkOfFleet, NetworkReport
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import Cell, Fact, Tone, exact_ratio, number, one_decimal, reason_text, whole
from milabench_ng.present.render.sections import Heading, Section, table

_WORST = 20
"""Links in the table of the worst, if they are not slow."""
_MEANS = {
    "gloo": "gloo over TCP between CPUs, not the fabric of the GPUs",
    "nccl": "NCCL between GPUs",
}


def network_facts(network: NetworkReport) -> Iterator[Fact]:
    """How the network does as a whole."""
    counts = {state: network.count(state) for state in LINK_STATES if state != "pass"}
    told = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
    tone: Tone = "bad" if not network.links or network.exit_code == 1 else "fair" if network.exit_code else "good"
    yield Fact("network", f"{counted(len(network.links), 'link')}, {told or 'none slow'}", tone)
    yield Fact("", f"{_backends(network.back_ends)}; {counted(network.devices, 'device')} per node at the same time")
    if rates := [one.gb_s for one in network.links if one.gb_s is not None]:
        low, middle = np.quantile(rates, (0.05, 0.5))
        yield Fact("", f"median {middle:.3g} GB/s in each direction, 5% of links below {low:.3g}{_latency(network)}")
    if network.variables:
        yield Fact("", ", ".join(network.variables))


def network_sections(network: NetworkReport) -> tuple[Section, ...]:
    """Tables for people; empty ones are left out."""
    return tuple(section for section in (links_table(network), _rings(network)) if section.rows)


def over_nodes_facts(over: OverNodesReport) -> Iterator[Fact]:
    """By what launches over nodes sent their messages, and who left them."""
    yield Fact("over nodes", f"{_backends(over.back_ends)}; no isolation, and no records: not in the score")
    yield from (Fact("", f"{node} left: {why}", "bad") for node, why in over.left.items())


def over_nodes_sections(over: OverNodesReport) -> tuple[Section, ...]:
    """The rate by the number of nodes."""
    rows = [
        (
            *(one.test, one.unit, one.nodes, one.ranks, one.groups, one.failed),
            *(one.per_rank, one.total, one.of_fewest),
            *(one.worst, one.worst_begins if one.groups > 1 else None, one.problem or None),
        )
        for one in over.rows
    ]
    made = table(
        "launches over nodes: the rate by the number of nodes",
        rows,
        "test",
        "unit",
        *(Heading(title, "", whole, True) for title in ("nodes", "ranks", "groups", "failed")),
        Heading("per rank", "unit/s", number, True),
        Heading("of all ranks", "unit/s", number, True),
        Heading("to the fewest nodes", "", exact_ratio, True),
        Heading("worst group", "unit/s", number, True),
        "begins at",
        Heading("because", "", reason_text, words=60),
        notes=("groups of neighbors work at the same time; per rank: of the median group",) if rows else (),
    )
    return (made,) if rows else ()


def links_table(network: NetworkReport) -> Section:
    """The links that do not pass, and the slowest of the others."""
    links = sorted(network.links, key=lambda one: (LINK_STATES.index(one.judged.state), _by_rate(one)))
    bad = [one for one in links if one.judged.state != "pass"]
    rows = [_row(one) for one in links[: max(_WORST, len(bad))]]
    return table(
        "the worst links between nodes",
        rows,
        "node",
        "other node",
        "verdict",
        Heading("GB/s", "", number, True),
        Heading("latency", "us", one_decimal, True),
        Heading("ratio", "", exact_ratio, True),
        Heading("at least", "", exact_ratio, True),
        Heading("at most", "", exact_ratio, True),
        Heading("retests", "", whole, True),
        Heading("because", "", reason_text, words=60),
        notes=("ratio: to what its two nodes reach with others; of the retests alone, or of the screen without any",),
    )


def _row(one: LinkOfFleet) -> tuple[Cell, ...]:
    judged = one.judged
    ratio = (judged.ratio.value, judged.ratio.low, judged.ratio.high) if judged.ratio else (None, None, None)
    return (*one.nodes, judged.state, one.gb_s, one.latency_us, *ratio, judged.retests, judged.why or None)


def _rings(network: NetworkReport) -> Section:
    rows = [
        (one.size, one.rings, one.failed, one.median, one.worst, one.worst_begins if one.rings > 1 else None)
        for one in network.rings
    ]
    return table(
        "rings of neighbors: what each node sends while it receives as much",
        rows,
        Heading("nodes", "", whole, True),
        Heading("rings", "", whole, True),
        Heading("failed", "", whole, True),
        Heading("median", "GB/s", number, True),
        Heading("worst", "GB/s", number, True),
        "worst begins at",
    )


def _by_rate(one: LinkOfFleet) -> float:
    return one.judged.ratio.value if one.judged.ratio else 0.0


def _backends(names: Sequence[str]) -> str:
    return " and ".join(_MEANS.get(name, name) for name in names) or "nobody met"


def _latency(network: NetworkReport) -> str:
    known = [one.latency_us for one in network.links if one.latency_us is not None]
    return f"; latency median {np.median(known):.3g} us" if known else ""

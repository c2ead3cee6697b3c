"""The heat map of the links between nodes, for as many nodes as one can read. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.fleet.network.report import LinkOfFleet, NetworkReport
from milabench_ng.present.html.figures import NEUTRAL, Box, Chart, cell, names, pace_colour, pace_key, plot

MOST_NODES = 64
"""Of more, the table of the worst links tells."""
_ROW = 14
"""Height of a row in pixels."""
_LOUDEST = 0.5
"""A link that is slower by this share is drawn in full."""


def network_charts(network: NetworkReport) -> Iterator[Chart]:
    """The heat map, if the nodes are few."""
    nodes = sorted({node for one in network.links for node in one.nodes}, key=lambda node: (len(node), node))
    rates = sorted(one.gb_s for one in network.links if one.gb_s is not None)
    if not rates or len(nodes) > MOST_NODES:
        return
    middle = rates[len(rates) // 2]
    boxes = (box for one in network.links for box in _boxes(one, nodes, middle))
    yield Chart(
        key="network",
        title="nodes by nodes",
        wide=True,
        reading=f"Bandwidth of each pair of nodes over the median, {middle:.3g} GB/s. Orange is slower, blue is "
        "faster, dashed is broken; blank did not meet. A slow node has an orange row and column, a slow link is an "
        "orange cell. Point at a cell for its figures.",
        views=(
            plot(
                names(nodes, side="top"),
                names(nodes, down=True),
                boxes,
                keys=(pace_key(ratio, _opacity(ratio)) for ratio in (0.5, 0.75, 0.9, 1.1)),
                height=_ROW * max(4, len(nodes)),
            ),
        ),
    )


def _boxes(one: LinkOfFleet, nodes: list[str], middle: float) -> Iterator[Box]:
    places = [nodes.index(node) for node in one.nodes]
    ratio = None if one.gb_s is None else one.gb_s / middle
    latency = "" if one.latency_us is None else f", {one.latency_us:.1f} us"
    figures = f"{one.gb_s:.3g} GB/s{latency}" if one.gb_s is not None else "failed"
    for column, row in (places, reversed(places)):
        yield cell(
            (column, row),
            NEUTRAL if ratio is None else pace_colour(ratio),
            0.2 if ratio is None else _opacity(ratio),
            dashed=one.judged.state == "broken",
            title=f"{one.nodes[0]} - {one.nodes[1]}: {figures}, {one.judged.state}",
        )


def _opacity(ratio: float) -> float:
    return round(min(0.9, 0.03 + 0.87 * abs(ratio - 1) / _LOUDEST), 2)

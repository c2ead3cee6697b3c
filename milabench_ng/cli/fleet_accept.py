"""``mnb accept`` on a fleet folder."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from milabench_ng.fleet.accepting import AcceptedNode, NodeDecision, Promise, accept_fleet
from milabench_ng.fleet.bundling import OpenedFleet
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import Cell, Fact, Tone, exact_ratio, one_line, toned
from milabench_ng.present.render.sections import Document, Facts, Form, Heading, table
from milabench_ng.present.writers import write

_CHANCE = 0.05
_SHOWN: dict[NodeDecision, str] = {
    "breaks": "violates",
    "lost": "lost",
    "inconclusive": "inconclusive",
    "keeps": "meets",
}
_TONES: dict[Cell, Tone] = {"violates": "bad", "lost": "bad", "inconclusive": "fair", "meets": "good"}


def accept_nodes(delivered: OpenedFleet, promise: Promise, form: Form) -> int:
    """Print the decision on every node; the exit code."""
    found = accept_fleet(delivered, promise)
    write(_document(found, promise, delivered.source), form, sys.stdout)
    decisions = {one.decision for one in found}
    return 1 if decisions & {"breaks", "lost"} else 4 if "inconclusive" in decisions else 0


def _document(found: Sequence[AcceptedNode], promise: Promise, source: str) -> Document:
    counts = Counter(one.decision for one in found)
    verdict = ", ".join(_counted(counts[decision], word) for decision, word in _SHOWN.items() if counts[decision])
    tone = _TONES[next((word for decision, word in _SHOWN.items() if counts[decision]), "inconclusive")]
    chance = f"each node is judged by itself: of {counted(len(found), 'node')} just at the guarantee, "
    told = (
        Fact("verdict", f"{verdict} ({100 * promise.guarantee:g}% of the bid)", tone),
        Fact("bid", f"{promise.bid.source}: {promise.bid.sentence}"),
        Fact("delivered", source),
        Fact("chance", f"{chance}up to {_CHANCE * len(found):.2g} violate it by chance"),
    )
    rows = [_row(one) for one in found]
    nodes = table(
        "",
        rows,
        "node",
        Heading("verdict", tone=toned(_TONES)),
        *(Heading(title, "", exact_ratio, True) for title in ("delivered / bid", "at least", "at most")),
        Heading("because", "", one_line, words=60),
        notes=("at least, at most: one-sided 95% bounds of the score",) if any(row[2] for row in rows) else (),
    )
    whole = {"schema": 1, "guarantee": promise.guarantee, "bid": promise.bid.source, "nodes": found}
    return Document(title="mnb accept", parts=(Facts(facts=told), nodes), table=nodes, aside=told, whole=whole)


def _counted(nodes: int, verdict: str) -> str:
    """``1 violates``, ``2 violate``, ``2 lost``."""
    return f"{nodes:,} {verdict if nodes == 1 else verdict.removesuffix('s')}"


def _row(one: AcceptedNode) -> tuple[Cell, ...]:
    made = one.acceptance
    score = next(iter(made.scores), None) if made else None
    ratio = (score.ratio, score.low, score.high) if score else (None, None, None)
    why = one.why or ("; ".join(made.reasons) if made else "") or (score.why if score else "")
    return one.node, _SHOWN[one.decision], *ratio, why or None

"""The lines that take nodes out of service, printed for somebody to run, and the nodes to look at before."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.fleet.verdicts.verdict import NodeVerdict
from milabench_ng.model.plain import names_of, short
from milabench_ng.present.render.cells import Fact

DRAINED = ("slow", "faulty")
"""Verdicts of nodes that nobody should get a job on, by the work that they finished."""


def drain_facts(verdicts: Sequence[NodeVerdict]) -> Iterator[Fact]:
    """What Slurm would be told of every node that should not work.

    A lost node shows nothing of itself: a connection, a disk or an option may be why.
    """
    for place, one in enumerate(one for one in verdicts if one.verdict in DRAINED):
        reason = short(f"mnb: {one.verdict}{_detail(one)}")
        words = ("scontrol", "update", f"nodename={one.node}", "state=drain", f"reason={reason}")
        yield Fact("" if place else "to drain", shlex.join(words))
    if lost := [one.node for one in verdicts if one.verdict == "lost"]:
        yield Fact("look first", f"{names_of(lost)}: lost, perhaps for a reason that is not the node's")


def _detail(one: NodeVerdict) -> str:
    if one.cause is not None and one.ratio is not None:
        return f", {100 * (1 - one.ratio.value):.1f}% in {one.cause.words}"
    failed = f"{', '.join(map(name_of_row, one.failed))} failed" if one.failed else ""
    return f", {one.why or failed}" if one.why or failed else ""

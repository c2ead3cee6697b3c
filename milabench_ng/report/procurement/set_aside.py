"""Which bids are set aside, since beside them nothing could be ranked: other suites, or GPUs cut otherwise. Pure.

A test that is not the same work in some two bids leaves the ranking for all (`same_work`). One bid that shares no work
with the others would leave no test, whatever its price. Most bids decide what is usual; of two kinds of equally many
bids, that of the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from milabench_ng.plain import short
from milabench_ng.report.summary.comparable import part_of_gpu
from milabench_ng.report.summary.summary import Summary


def set_aside(bids: Mapping[str, Summary], reference: Summary) -> dict[str, str]:
    """Those of ``bids`` that have no work in common with most, and why."""
    others = _unusual({name: _suites(one) for name, one in bids.items()}, _suites(reference))
    found = {name: f"set aside: it ran {suites}, and most bids {usual}" for name, (suites, usual) in others.items()}
    alike = {name: part_of_gpu(one) for name, one in bids.items() if name not in found}
    for name, (cut, usual) in _unusual(alike, part_of_gpu(reference)).items():
        found[name] = f"set aside: its GPUs are {cut}, those of most bids {usual}, so no test is the same work"
    return found


def _suites(summary: Summary) -> str:
    return " and ".join(short(suite) for suite in sorted(summary.known_suites))


def _unusual(kinds: Mapping[str, str], reference: str) -> dict[str, tuple[str, str]]:
    """The kind of each bid that is not of the usual one, and that; nothing if no kind is more usual than all others."""
    counts = Counter(kinds.values())
    first, *others = sorted(((counts[kind], kind == reference), kind) for kind in counts)[::-1]
    if any(size == first[0] for size, _ in others):
        return {}
    return {name: (kind, first[1]) for name, kind in kinds.items() if kind != first[1]}

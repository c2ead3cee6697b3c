"""Steps with more items than those of other launches that met such batches: padding that is counted as work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from milabench_ng.model.grouping import grouped
from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.record import Mnb
from milabench_ng.records.window import items_per_step
from milabench_ng.records.work import Work
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_ALIKE = 1.1
"""How far the mean items of a step may differ between launches of a test: sentences differ in length."""
_ALIKE_PRECISIONS = 1.2
"""The same between precisions, of which a slow one meets few batches: 1.06 was seen."""


def _unlike(evidence: Evidence) -> Iterator[str]:
    means = ((kept, items_per_step(rank.slices for rank in kept.record.mnb.ranks)) for kept in evidence.good)
    counted = [(kept, mean) for kept, mean in means if mean is not None]
    yield from _more_than(median, grouped(counted, lambda pair: pair[0].record.mnb.label), _ALIKE)
    yield from _more_than(min, grouped(counted, lambda pair: _batches_of(pair[0].record.mnb)), _ALIKE_PRECISIONS)


def _batches_of(mnb: Mnb) -> tuple[str, frozenset[tuple[str, object]]]:
    """What decides which batches a launch meets: the workload, and its options but for the precision."""
    return mnb.launch.workload, frozenset(Work.of(mnb).options_that_change("work", "numbers").items())


def _more_than(
    usual_of: Callable[[Iterable[float]], float],
    kin: Mapping[object, Sequence[tuple[ReadRecord, float]]],
    most: float,
) -> Iterator[str]:
    """``kin``: launches with their items a step, which should be alike; ``most``: times the usual ones."""
    for launches in kin.values():
        usual = usual_of(items for _, items in launches)
        for kept, items in launches:
            if items > usual * most:
                yield f"{kept.name}: {items:.6g} items per step, but others with the same batches have {usual:.6g}"


DOUBT = Doubt(
    name="unlike-steps",
    title="more items per step than in other launches",
    ask="ask for the log of the launch, and compare with other bids",
    look=_unlike,
)

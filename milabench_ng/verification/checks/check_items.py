"""The rule on items: counts follow from steps, so that whoever raises them has to raise the steps too."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from milabench_ng.model.builtin import Declared
from milabench_ng.model.catalogue import Derived
from milabench_ng.model.errors import InputError
from milabench_ng.model.formula import names
from milabench_ng.records.latency import batches
from milabench_ng.records.record import Mnb, Rank
from milabench_ng.records.work import declared
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Finding, judged

_PACE = "option that sets the pace"


def items(evidence: Evidence) -> Finding:
    """Every record counts what its workload declares, no more a step than its options allow, and its own steps."""
    return judged(
        [*_not_as_declared(evidence), *_not_as_others(evidence), *_too_many(evidence), *_other_steps(evidence)]
    )


def _not_as_declared(evidence: Evidence) -> Iterator[str]:
    """Records that count other items than their workload declares; a version had fewer options and derived units."""
    for name, record in evidence.named():
        own = evidence.as_ran.get(record.mnb.launch.workload)
        if own is not None:
            pace_only = tuple(name for name in own.pace_only if name in record.mnb.launch.arguments)
            recorded = msgspec.structs.replace(record.mnb, derived=_in_words_of(own.derived, record.mnb))
            derived = tuple(each for each in own.derived if each in recorded.derived)
            found = declared(recorded) | {_PACE: record.mnb.paced_by or "none"}
            expected = declared(msgspec.structs.replace(own, pace_only=pace_only, derived=derived))
            expected[_PACE] = own.paced(record.mnb.launch.arguments) or "none"
            for what, one in found.items():
                if one != (other := expected[what]):
                    yield f"{name}: its {what} is {one}, {record.mnb.launch.workload} has {other}"


def _in_words_of(own: Sequence[Derived], mnb: Mnb) -> tuple[Derived, ...]:
    """The derived units of a launch, each as ``own`` has it if both come to the same: a version wrote it otherwise."""
    return tuple(
        next((known for known in own if known.unit == each.unit and _alike(known, each, mnb)), each)
        for each in mnb.derived
    )


def _alike(one: Derived, other: Derived, mnb: Mnb) -> bool:
    """Whether two formulas have the same value for a launch, with made-up numbers for what it measured."""
    if one.formula == other.formula:
        return True
    unknown = sorted({*names(one.formula), *names(other.formula)} - {*mnb.launch.arguments})
    measured = {name: 2 + math.sqrt(place) for place, name in enumerate(unknown, 2)} | {"devices": len(mnb.devices)}
    try:
        values = [each.of(measured.get("rate", 1.0), mnb.launch.arguments, measured) for each in (one, other)]
    except InputError:
        return False
    return math.isclose(*values, rel_tol=1e-12)


def _not_as_others(evidence: Evidence) -> Iterator[str]:
    """Records that count different items from most of their row."""
    rows: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for _, record in evidence.named():
        rows[record.mnb.label][tuple(declared(record.mnb).values())] += 1
    for name, record in evidence.named():
        usual, _ = rows[record.mnb.label].most_common(1)[0]
        for (what, one), other in zip(declared(record.mnb).items(), usual, strict=True):
            if one != other:
                yield f"{name}: its {what} is {one}, that of most of its row {other}"


def _too_many(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        unit, most = record.mnb.unit, _most_items(record.mnb, evidence.declared.get(record.mnb.launch.workload))
        for rank in record.mnb.ranks:
            worst = max((row.count / max(1, row.steps) for row in rank.slices), default=0.0)
            if most is not None and worst > most:
                yield f"{name}: rank {rank.rank} counts {worst:.6g} {unit} a step, but its options allow {most:g}"


def _most_items(mnb: Mnb, own: Declared | None) -> float | None:
    """The most items of a step, by the launch's options; None if its workload does not say."""
    if own is None or own.unit != mnb.unit:
        return None
    try:
        return own.most_of_a_step(mnb.launch.arguments, len(mnb.launch.devices))
    except InputError:  # the rule on arguments reports what is missing
        return None


def _other_steps(evidence: Evidence) -> Iterator[str]:
    """Ranks whose steps are not as many as the loss scale, or the latencies of inference, counted."""
    for name, record in evidence.named():
        for rank in record.mnb.ranks if record.success else ():
            alone = len(record.mnb.ranks) == 1
            yield from (f"{name}: rank {rank.rank} {why}" for why in _miscounted(rank, alone=alone))


def _miscounted(rank: Rank, *, alone: bool) -> Iterator[str]:
    steps = sum(row.steps for row in rank.slices)
    # Several ranks end with one step, which may be before a slice does: up to a slice of steps follow the last one.
    rest = 0 if alone else max((row.steps for row in rank.slices), default=0)
    if rank.skipped is not None and not 0 <= rank.skipped.steps - steps <= rest:
        yield f"has {steps} steps, its loss scale saw {rank.skipped.steps}"
    timed = sum(batches(row.latency) for row in rank.slices)
    if 0 < timed < steps:
        yield f"has {steps} steps and the latencies of {timed} batches"

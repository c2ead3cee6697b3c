"""How many items a step can have: counts follow from steps, so that whoever raises them has to raise the steps too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from milabench_ng.builtin import Declared
from milabench_ng.catalogue import numbers
from milabench_ng.errors import InputError
from milabench_ng.formula import evaluate
from milabench_ng.grouping import grouped
from milabench_ng.records.latency import batches
from milabench_ng.records.record import Mnb, Rank
from milabench_ng.records.window import items_per_step
from milabench_ng.report.launch.traces import PACING
from milabench_ng.report.verification.evidence import Evidence, StoredRecord

_BUS = "(small_kib / 8 + 16 * large_mib + 4 * block_mib + 2 * exchange_mib) * (devices - 1) / devices + 1"
"""Twice 64 and 8 all-reduces, twice an all-gather and a reduce-scatter, and two all-to-alls; one for rounding."""
_MOST = {
    "atari": "environments * steps",
    "cart": "steps",
    "checkpoint": "shard_mib",
    "collectives": _BUS,
    "gnmt": "2 * batch_size * (longest + 1)",
    "gpu_math": "10",
    "gpu_stream": "20 * mib",
    "h2d": "2 * mib",
    "llm_decode": "batch_size",
    "llm_fsdp": "batch_size * length",
    "llm_lora": "batch_size * length",
    "llm_prefill": "batch_size * length",
    "llm_pretrain": "batch_size * length",
    "memory_stream": "3 * mib",
    "minigrid": "environments * steps",
    "moe": "batch_size * length",
    "tacotron2": "batch_size * frames",
    "toy_lstm": "samples",
    "txl": "batch_size * length",
    "unet3d_infer": (
        "(block_depth + 2 * halo_depth) * (block_height + 2 * halo_height) * (block_width + 2 * halo_width)"
    ),
    "unet3d_train": "batch_size * depth * height * width",
    "waveglow": "8000 * batch_size",
    "wlm": "batch_size * bptt",
}
"""Items that a step has at most, over the workload's options and the launch's devices, where an item is not
one of the batch."""
_OF_A_BATCH = {"images", "samples", "sequences", "sentence pairs"}
"""Units of which a step has a batch."""
_ALIKE = 1.1
"""How far the mean items of a step may differ between launches of a test: sentences differ in length."""
_ALIKE_PRECISIONS = 1.2
"""The same between precisions, of which a slow one meets few batches: 1.06 was seen."""
_NOT_OF_BATCHES = (*PACING, "precision")


def odd_items(evidence: Evidence) -> Iterator[str]:
    """Launches with more items than their steps can have, or whose steps do not agree with what else counted them."""
    yield from _too_many(evidence)
    yield from _other_steps(evidence)
    yield from _unlike_others(evidence)


def _too_many(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        unit, most = record.mnb.unit, most_items(record.mnb, evidence.declared.get(record.mnb.launch.workload))
        for rank in record.mnb.ranks:
            worst = max((row.count / max(1, row.steps) for row in rank.slices), default=0.0)
            if most is not None and worst > most:
                yield f"{name}: rank {rank.rank} counts {worst:.6g} {unit} a step, its options allow {most:g}"


def most_items(mnb: Mnb, own: Declared | None) -> float | None:
    """The most items of a step, by the launch's options; None if nothing is known of its workload."""
    if own is None or own.unit != mnb.unit:
        return None
    formula = _MOST.get(mnb.launch.workload, "batch_size" if own.unit in _OF_A_BATCH else "")
    options = numbers(mnb.launch.arguments)
    try:
        return evaluate(formula, options | {"devices": len(mnb.launch.devices)}) if formula else None
    except InputError:  # the rule on arguments reports what is missing
        return None


def _other_steps(evidence: Evidence) -> Iterator[str]:
    """Ranks whose steps are not as many as the loss scale, or the latencies of inference, counted."""
    for name, record in evidence.named():
        for rank in record.mnb.ranks if record.success else ():
            yield from (f"{name}: rank {rank.rank} {why}" for why in _miscounted(rank))


def _miscounted(rank: Rank) -> Iterator[str]:
    steps = sum(row.steps for row in rank.slices)
    if rank.skipped is not None and rank.skipped.steps != steps:
        yield f"has {steps} steps, its loss scale saw {rank.skipped.steps}"
    timed = sum(batches(row.latency) for row in rank.slices)
    if 0 < timed < steps:
        yield f"has {steps} steps and the latencies of {timed} batches"


def _unlike_others(evidence: Evidence) -> Iterator[str]:
    """Launches whose steps have more items than those of others of their test, or of others that met such batches."""
    means = ((kept, items_per_step(rank.slices for rank in kept.record.mnb.ranks)) for kept in evidence.good)
    counted = [(kept, mean) for kept, mean in means if mean is not None]
    yield from _more_than(median, grouped(counted, lambda pair: pair[0].record.mnb.label), _ALIKE)
    yield from _more_than(min, grouped(counted, lambda pair: batches_of(pair[0].record.mnb)), _ALIKE_PRECISIONS)


def batches_of(mnb: Mnb) -> tuple[str, frozenset[tuple[str, object]]]:
    """What decides which batches a launch meets: the workload, and its options but for the precision."""
    options = mnb.launch.arguments.items()
    return mnb.launch.workload, frozenset((name, value) for name, value in options if name not in _NOT_OF_BATCHES)


def _more_than(
    usual_of: Callable[[Iterable[float]], float],
    kin: Mapping[object, Sequence[tuple[StoredRecord, float]]],
    most: float,
) -> Iterator[str]:
    """``kin``: launches with their items a step, which should be alike; ``most``: times the usual ones."""
    for launches in kin.values():
        usual = usual_of(items for _, items in launches)
        for kept, items in launches:
            if items > usual * most:
                yield f"{kept.name}: {items:.6g} items a step, others of the same batches have {usual:.6g}"

"""The rule on items: counts follow from steps, so that whoever raises them has to raise the steps too."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from milabench_ng.builtin import Declared
from milabench_ng.catalogue import numbers
from milabench_ng.errors import InputError
from milabench_ng.formula import evaluate
from milabench_ng.records.latency import batches
from milabench_ng.records.record import Mnb, Rank
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.report.verification.findings import Finding, judged

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
_ITEMS = ("unit", "classic_factor", "bound", "list of derived units")
_Items = tuple[str, float, str | None, str]


def items(evidence: Evidence) -> Finding:
    """Every record counts what its workload declares, no more a step than its options allow, and its own steps."""
    return judged(
        [*_not_as_declared(evidence), *_not_as_others(evidence), *_too_many(evidence), *_other_steps(evidence)]
    )


def _not_as_declared(evidence: Evidence) -> Iterator[str]:
    """Records that count other items than their workload says in this installation."""
    for name, record in evidence.named():
        own = evidence.builtin.get(record.mnb.launch.workload)
        if own is not None:
            for what, one, other in zip(_ITEMS, _items(record.mnb), _items(own), strict=True):
                if one != other:
                    yield f"{name}: its {what} is {one}, {record.mnb.launch.workload} has {other}"


def _not_as_others(evidence: Evidence) -> Iterator[str]:
    """Records that count different items from most of their row."""
    rows: dict[str, Counter[_Items]] = defaultdict(Counter)
    for _, record in evidence.named():
        rows[record.mnb.label][_items(record.mnb)] += 1
    for name, record in evidence.named():
        usual, _ = rows[record.mnb.label].most_common(1)[0]
        for what, one, other in zip(_ITEMS, _items(record.mnb), usual, strict=True):
            if one != other:
                yield f"{name}: its {what} is {one}, that of most of its row {other}"


def _items(counted: Mnb | Declared) -> _Items:
    derived = ", ".join(f"{each.unit} = {each.formula}" for each in counted.derived)
    return counted.unit, counted.classic_factor, counted.bound, derived or "none"


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

"""Losses, gradient norms, digests and skipped steps: what a launch computed is told at all steps that ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from milabench_ng.records.late_steps import late_steps
from milabench_ng.records.precision_seen import SCALED
from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.record import DIGEST_STEP, PROBED_STEPS, Rank
from milabench_ng.verification.evidence import Evidence

Told = Mapping[str, object]


def untold_steps(evidence: Evidence) -> Iterator[str]:
    """Launches that leave out what they computed at steps that they did, or its skipped steps.

    A session in which one rank tells late steps is of a version whose ranks all do.
    """
    nonce = evidence.manifest.plan.nonce
    late = {label: late_steps(nonce, label) for label in {kept.record.mnb.label for kept in evidence.good}}
    good = [kept.record.mnb for kept in evidence.good]
    telling = {mnb.session for mnb in good if _tells(mnb.ranks, late[mnb.label])}
    for kept in evidence.good:
        declared = evidence.declared.get(kept.record.mnb.launch.workload)
        asked = (*PROBED_STEPS, *(late[kept.record.mnb.label] if kept.record.mnb.session in telling else ()))
        for rank in kept.record.mnb.ranks if declared else ():
            found = _lacking(kept, rank, asked, learned=bool(declared and declared.trains))
            yield from (f"{kept.name}: rank {rank.rank} has no {what}" for what in found)


def _tells(ranks: Iterable[Rank], late: Iterable[int]) -> bool:
    return any(not rank.losses.keys().isdisjoint(map(str, late)) for rank in ranks)


def _lacking(kept: ReadRecord, rank: Rank, asked: Iterable[int], *, learned: bool) -> Iterator[str]:
    seen = kept.record.mnb.precision
    steps, models = sum(row.steps for row in rank.slices), bool(seen and seen.dtypes)
    if learned or rank.losses:
        yield from _missing("loss", rank.losses, asked, steps)
    elif models and not rank.digests and steps >= DIGEST_STEP:
        yield f"loss of its {steps} steps, and no digest"
    if learned:
        yield from _missing("gradient norm", rank.gradient_norms, asked, steps)
    if learned and models and steps >= DIGEST_STEP and str(DIGEST_STEP) not in rank.digests:
        yield f"digest of the parameters at step {DIGEST_STEP}"
    if learned and seen is not None and seen.requested in SCALED and rank.skipped is None:
        yield f"count of the steps that the loss scale of {seen.requested} skipped"


def _missing(what: str, told: Told, asked: Iterable[int], steps: int) -> Iterator[str]:
    """Steps that the rank did and does not tell. It may tell more: some train several times in a step."""
    yield from (f"{what} at step {step}" for step in asked if step <= steps and str(step) not in told)

"""All doubts, in the order of docs/run-rules.md."""

from __future__ import annotations

from milabench_ng.errors import InputError
from milabench_ng.plain import plain
from milabench_ng.verification.absurd import ABSURD, incomputable
from milabench_ng.verification.doubts import (
    beyond_baseline,
    beyond_peak,
    clock_steps,
    copied_slices,
    gpu_counters,
    gpu_limits,
    gpu_memory,
    idle_gpus,
    late_stops,
    outside_traces,
    shipped_rate,
    tuned_kernel,
    unlike_steps,
)
from milabench_ng.verification.doubts.doubt import CORPUS, Doubt
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Doubted
from milabench_ng.verification.rules import Rules

DOUBTS: tuple[Doubt, ...] = (
    beyond_peak.DOUBT,
    beyond_baseline.DOUBT,
    shipped_rate.DOUBT,
    copied_slices.DOUBT,
    unlike_steps.DOUBT,
    late_stops.DOUBT,
    clock_steps.DOUBT,
    tuned_kernel.DOUBT,
    idle_gpus.DOUBT,
    gpu_counters.DOUBT,
    gpu_memory.DOUBT,
    gpu_limits.DOUBT,
    outside_traces.DOUBT,
)


def raised(evidence: Evidence) -> tuple[Doubted, ...]:
    """The doubts that the results raise."""
    found = ((doubt, _reasons(doubt, evidence)) for doubt in DOUBTS)
    return tuple(
        Doubted(
            name=doubt.name,
            title=doubt.title,
            reasons=reasons,
            honest=doubt.honest,
            corpus=CORPUS,
            ask=doubt.ask,
            refused=doubt.name in evidence.rules.doubts_refused,
        )
        for doubt, reasons in found
        if reasons
    )


def _reasons(doubt: Doubt, evidence: Evidence) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(map(plain, doubt.look(evidence))))
    except ABSURD as error:
        return (incomputable(error),)


def require_known(rules: Rules) -> None:
    """Raise InputError if the rules refuse a doubt that there is not."""
    names = [doubt.name for doubt in DOUBTS]
    for name in rules.doubts_refused:
        if name not in names:
            raise InputError(
                f"rules: doubts_refused: there is no doubt {plain(repr(name))}; there are {', '.join(names)}"
            )

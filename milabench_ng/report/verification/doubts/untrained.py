"""Losses and gradients that hardly any training has: unknown ones where nothing overflows, a first gradient of 0."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.records.record import Mnb
from milabench_ng.report.verification.doubts.doubt import Doubt
from milabench_ng.report.verification.evidence import Evidence

_WIDE = ("fp32", "tf32", "bf16")
"""Modes whose range is that of fp32."""


def _untrained(evidence: Evidence) -> Iterator[str]:
    for kept in evidence.good:
        yield from (f"{kept.name}: {why}" for why in _of_launch(kept.record.mnb))


def _of_launch(mnb: Mnb) -> Iterator[str]:
    mode = mnb.precision.requested if mnb.precision else None
    for rank in mnb.ranks:
        for what, values in {"loss": rank.losses, "gradient norm": rank.gradient_norms}.items():
            unknown = [step for step, value in values.items() if value is None]
            if mode in _WIDE and unknown:
                yield f"rank {rank.rank} has no {what} of step {unknown[0]}, and {mode} has room for it"
        if rank.gradient_norms.get("1") == 0:  # later ones may vanish, when everything is learnt
            yield f"rank {rank.rank} trains, and its first gradient is 0"


DOUBT = Doubt(
    name="untrained",
    title="losses or gradients that hardly any training has",
    ask="ask for the log of the launch",
    look=_untrained,
)

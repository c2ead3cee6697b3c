"""GPUs with another memory than their data sheet says: tests and options by memory class follow from it."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.baselines.peaks import peak
from milabench_ng.model.memory_classes import REACHES
from milabench_ng.model.units import GIB, format_bytes
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_MORE = 1.02
"""No GPU shows more memory than its name says."""


def _other_sizes(evidence: Evidence) -> Iterator[str]:
    for gpu in evidence.manifest.inventory.gpus:
        known = None if gpu.mig else peak(gpu.name)
        if known is not None and gpu.memory_bytes is not None:
            part = gpu.memory_bytes / (known.size * GIB)
            if not REACHES <= part <= _MORE:
                has = format_bytes(gpu.memory_bytes)
                yield f"{gpu.uuid} ({gpu.name}) reports {has}, but this model has {known.size:g} GiB"


DOUBT = Doubt(
    name="gpu-memory",
    title="GPU memory differs from the data sheet",
    ask="ask for the part number",
    look=_other_sizes,
)

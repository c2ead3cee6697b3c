"""GPUs that may draw more power or run faster than such GPUs have: other firmware, or another board."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.baselines.peaks import peak
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence


def _higher(evidence: Evidence) -> Iterator[str]:
    known = {gpu.uuid: found for gpu in evidence.manifest.inventory.gpus if (found := peak(gpu.name)) is not None}
    edges = (edge.settings for one in evidence.records for edge in one.record.mnb.conditions.values())
    for uuid, gpu in (pair for settings in edges if settings is not None for pair in settings.gpus.items()):
        sheet = known.get(uuid)
        if sheet is None:
            continue
        for what, limit, most, unit in (
            ("power limit", gpu.power_limit_w, sheet.watts, "W"),
            ("default power limit", gpu.default_power_limit_w, sheet.watts, "W"),
            ("highest clock", gpu.max_sm_clock_mhz, sheet.clock_mhz, "MHz"),
        ):
            if limit is not None and most is not None and limit > most:
                yield f"the {what} of {uuid} is {limit:g} {unit}, that of such GPUs {most:g} {unit}"


DOUBT = Doubt(
    name="gpu-limits",
    title="GPUs with a higher power limit or clock than their model has",
    ask="ask for the part number and the VBIOS",
    look=_higher,
)

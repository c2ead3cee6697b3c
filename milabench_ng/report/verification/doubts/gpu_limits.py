"""GPUs that may draw more power or run faster than their data sheet says: other firmware, or another board."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.report.baselines.peaks import peak
from milabench_ng.report.verification.doubts.doubt import Doubt
from milabench_ng.report.verification.evidence import Evidence


def _higher(evidence: Evidence) -> Iterator[str]:
    known = {gpu.uuid: found for gpu in evidence.manifest.inventory.gpus if (found := peak(gpu.name)) is not None}
    edges = (edge.settings for one in evidence.records for edge in one.record.mnb.conditions.values())
    for uuid, gpu in (pair for settings in edges if settings is not None for pair in settings.gpus.items()):
        sheet = known.get(uuid)
        for what, limit, unit in (
            ("power limit", gpu.power_limit_w, "W"),
            ("default power limit", gpu.default_power_limit_w, "W"),
            ("highest clock", gpu.max_sm_clock_mhz, "MHz"),
        ):
            most = None if sheet is None else sheet.watts if unit == "W" else sheet.clock_mhz
            if limit is not None and most is not None and limit > most:
                yield f"the {what} of {uuid} is {limit:g} {unit}, the data sheet says {most:g} {unit}"


DOUBT = Doubt(
    name="gpu-limits",
    title="GPUs with a higher power limit or clock than their data sheet says",
    ask="ask for the part number and the VBIOS",
    look=_higher,
)

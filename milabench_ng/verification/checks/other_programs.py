"""The CPU time that other programs took beside a batch, computed again from the telemetry of its records."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.model.limits import most
from milabench_ng.node.foreign_load import foreign_share
from milabench_ng.records.reading import ReadRecord
from milabench_ng.telemetry.messages import HOST_KEY, telemetry_key
from milabench_ng.verification.evidence import Evidence

_SURE = 0.05
"""Of the busy CPU time, beyond the limit: the windows of a batch's launches differ a little. In honest batches without
the mark it is 0.087 at most, and where there is one, the mark to three digits."""


def untold_load(evidence: Evidence) -> Iterator[str]:
    """Launches beside other programs that took more than is tolerated, without the mark that says so."""
    planned = evidence.launches_planned
    for (number, _), batch in evidence.batches().items():
        whole = len(batch) == planned.get(number) and all(kept.record.success for kept in batch)
        share = _taken(batch, evidence.manifest.inventory.cpus.threads) if whole else None
        if share is None or share <= most("foreign CPU load") + _SURE:
            continue
        for kept in batch:
            if all(mark.kind != "foreign CPU load" for mark in kept.record.mnb.marks):
                yield (
                    f"{kept.name}: other programs took {share:.1%} of the busy CPU time, but the record has "
                    "no such warning"
                )


def _taken(batch: list[ReadRecord], cpus: int | None) -> float | None:
    """The share that no tenant used; None if it is not known of all of them."""
    told = [kept.record.mnb for kept in batch]
    tenants = [mnb.telemetry.get(telemetry_key("tenant", slot), {}) for mnb in told for slot in mnb.launch.slot_ids]
    if not cpus or not all("cpu_s" in one for one in tenants):
        return None
    return foreign_share(told[0].telemetry.get(telemetry_key("host", HOST_KEY), {}), tenants, cpus)

"""What NVML tells of a GPU's health: errors of its memory, rows to be remapped, XIDs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from milabench_ng.analysis.conditions.condition import Condition, Seen, held, risen


def health(seen: Seen) -> Iterator[Condition]:
    """Of each device between the edges."""
    for slot, uuid in seen.gpus.items():
        states = seen.states(uuid)
        if states is not None:
            first, last = states
            corrected = risen(first.ecc_corrected, last.ecc_corrected)
            uncorrected = risen(first.ecc_uncorrected, last.ecc_uncorrected)
            if corrected is not None:
                yield held("corrected ECC errors", corrected, slot)
            if uncorrected is not None:
                yield held("uncorrected ECC errors", uncorrected, slot)
            if last.remapped_rows is not None and len(last.remapped_rows) > 2:
                yield held("rows to be remapped", sum(last.remapped_rows[2:]), slot)
        xids = seen.mnb.xids
        if xids is not msgspec.UNSET:
            numbers = xids.get(seen.boards.get(uuid, uuid), ())
            yield held("XID", len(numbers), slot, ", ".join(map(str, numbers)))

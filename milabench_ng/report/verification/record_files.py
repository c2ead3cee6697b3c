"""Reads the records of an untrusted folder: what memory and time depend on is bounded before rules look at them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

from milabench_ng.errors import InputError
from milabench_ng.files import MIB
from milabench_ng.plan import Plan
from milabench_ng.records.names import RECORD_NAME
from milabench_ng.records.reading import Problem, ReadRecord, decoded_size, problem, read_record, record_content
from milabench_ng.records.record import Record
from milabench_ng.report.verification.evidence import StoredRecord

MAX_RECORDS = 256 * MIB
"""Of one folder: a day of slices of ten tenants."""
MAX_DECODED = 768 * MIB
"""Of one folder, by `records.reading.decoded_size`: rules need all records at once. Slices take twice their text."""
_SHORTEST_S = 0.1
"""Slices that are asked to be shorter are counted as if they were so long."""
_MORE_SLICES = 1_000
"""For the steps after a stop, and for an orchestrator that stood still."""


def read_records(
    folder: Path, names: Iterable[str], changed: Collection[str], plan: Plan
) -> tuple[tuple[StoredRecord, ...], tuple[Problem, ...]]:
    """The records that may be decoded: unchanged since they were packed, and as large as memory and ``plan`` allow."""
    kept: list[StoredRecord] = []
    unreadable: list[Problem] = []
    left, left_decoded, longest_s = MAX_RECORDS, MAX_DECODED, longest(plan)
    for name in filter(RECORD_NAME.fullmatch, names):
        try:
            if name in changed:
                raise InputError("it was changed after it was packed, and is not read")
            content = record_content(folder / name)
            left, left_decoded = left - len(content), left_decoded - decoded_size(content)
            if left < 0:
                raise InputError(f"the records of the folder hold more than {MAX_RECORDS // MIB} MiB")
            if left_decoded < 0:
                raise InputError(f"the records of the folder would take more than {MAX_DECODED // MIB} MiB of memory")
            found = read_record(content, name)
            if isinstance(found, ReadRecord):
                kept.append(_stored(found, content, longest_s))
            else:
                unreadable.append(found if isinstance(found, Problem) else problem(name, "not a record of this mnb"))
        except InputError as error:
            unreadable.append(problem(name, f"not a readable record: {error}"))
    return tuple(kept), tuple(unreadable)


def _stored(read: ReadRecord, content: bytes, longest_s: float | None) -> StoredRecord:
    """The record in a file. Raises InputError for what the rules must not see."""
    record = read.record
    require_possible(record, longest_s)
    if not record.mnb.launch.devices or not record.mnb.devices:
        raise InputError("its launch has no device")
    return StoredRecord(file=read.file, sha256=hashlib.sha256(content).hexdigest(), record=record)


def longest(plan: Plan) -> float | None:
    """The largest ``max_seconds`` of its launches, at which a batch is stopped; None if one has none."""
    found = [launch.arguments.get("max_seconds") for launch in plan.launches]
    known = [float(one) for one in found if isinstance(one, int | float)]
    return max(known) if known and len(known) == len(found) else None


def require_possible(record: Record, longest_s: float | None) -> None:
    """Raise InputError for more than twice the slices that a rank can have made in ``longest_s``."""
    asked = record.mnb.launch.arguments.get("sample_duration")
    if longest_s is None or not isinstance(asked, int | float):
        return
    least_s = max(float(asked), _SHORTEST_S)
    most = 2 * longest_s / least_s + _MORE_SLICES
    for rank in record.mnb.ranks:
        if len(rank.slices) > most:
            possible = f"{longest_s:g} s, its max_seconds, have at most {longest_s / least_s:.0f} of {least_s:g} s"
            raise InputError(f"rank {rank.rank} has {len(rank.slices):,} slices; {possible}")

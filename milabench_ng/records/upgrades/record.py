"""The upgrade steps of records. They see our part, ``mnb``: records of 2020 have none and no schema."""

from __future__ import annotations

from typing import Any

from milabench_ng.records.upgrades.chain import Raw, Upgrades, changed, each, filled, noted

_UNKNOWN_TO_1: Raw = {"session": 1, "attempt": 1, "host_pace": {}, "sampled": None}
"""The telemetry of schema 1 is from start to stop unless the record says otherwise."""
_UNKNOWN_TO_RANKS_OF_1: Raw = {"backlog": None, "gradient_norms": {}, "skipped": None}


def from_1(raw: Raw) -> Raw:
    """Marks were sentences; the host pace, gradient norms, skipped steps and when samples were taken came later."""
    return changed(
        filled(raw, _UNKNOWN_TO_1),
        source=lambda source: filled(source, {"modules": []}),
        ranks=lambda ranks: each(ranks, lambda rank: filled(rank, _UNKNOWN_TO_RANKS_OF_1)),
        telemetry=lambda sources: each(sources, _with_spans),
        marks=lambda marks: each(marks, noted),
    )


def _with_spans(source: Any) -> Any:
    """Add a span of 0 s from the first sample to the last: not known."""
    return each(source, lambda gauge: filled(gauge, {"span_s": 0.0}))


RECORD_UPGRADES = Upgrades("record", (from_1,))


def upgrade_record(raw: Any, source: str) -> Any:
    """The record ``raw`` with our part in today's schema. Raises InputError as `Upgrades.upgrade` does."""
    if not isinstance(raw, dict) or raw.get("mnb") is None:
        return raw
    return raw | {"mnb": RECORD_UPGRADES.upgrade(raw["mnb"], source)}

"""The upgrade steps of summaries; stored ones are baselines."""

from __future__ import annotations

from typing import Any

from milabench_ng.records.upgrades.chain import Raw, Upgrades, changed, each, noted

_WIDEST = 1e6
"""How far the band of an estimate may lie from its value."""
_NO_LAUNCH: Raw = {"n": 0, "failures": 0, "train": None, "log_perf": None, "repeats": {}}


def from_1(raw: Raw) -> Raw:
    """Marks were sentences, and an estimated row had counts and spread of launches on another device."""
    return changed(raw, tests=lambda rows: each(rows, _row_from_1))


def _row_from_1(row: Any) -> Any:
    return _estimated(changed(row, marks=lambda marks: each(marks, noted))) if isinstance(row, dict) else row


def _estimated(row: Raw) -> Raw:
    """An estimate keeps its value and its band, and nothing that was measured elsewhere."""
    match row:
        case {
            "train": {"mean": float() | int() as value},
            "origin": {"kind": "estimated", "band": [float() | int() as least, float() | int() as most], **origin},
        } if 0 < value / _WIDEST <= least * value <= value <= most * value <= value * _WIDEST:
            estimate = {"value": value, "low": least * value, "high": most * value}
            return row | _NO_LAUNCH | {"estimate": estimate, "origin": {"kind": "estimated", **origin}}
    return row


SUMMARY_UPGRADES = Upgrades("summary", (from_1,))

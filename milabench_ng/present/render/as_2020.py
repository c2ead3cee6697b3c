"""A summary in the format of the 2020 ``milarun summary``: flat, with its field names, rates in the items of 2020."""

from __future__ import annotations

from typing import Any

from milabench_ng.analysis.summary.summary import Stat, Summary, TestSummary
from milabench_ng.model.plain import printed_json


def encode_2020(summary: Summary) -> str:
    """Encode as indented JSON; rates of unknown items and values that were not measured are null."""
    rows = {label: _row(row, _scale(row, summary)) for label, row in summary.tests.items()}
    return printed_json(rows, indent=4)


def _scale(row: TestSummary, summary: Summary) -> float | None:
    """Items of 2020 per item of the row; None if unknown."""
    return 1.0 if summary.units == "classic" else row.work.classic_factor


def _row(row: TestSummary, scale: float | None) -> dict[str, Any]:
    return {
        "n": row.n,
        "failures": row.failures,
        "total": row.total,
        "train": _scaled(row.train, scale) if row.train and scale else None,
        "pergpu": {device: _scaled(stat, scale) for device, stat in (row.pergpu or {}).items() if scale},
        "peak_memory": row.peak_memory,
    }


def _scaled(stat: Stat, scale: float) -> Stat:
    return Stat(stat.n, stat.min * scale, stat.max * scale, stat.mean * scale, stat.std * scale)

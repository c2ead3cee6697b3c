"""Rows of a summary from flat fields, as a file has them: those of the work and those beside it."""

from __future__ import annotations

from typing import Any

import msgspec

from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.records.work import Work


def _nested(fields: dict[str, Any], work: Work) -> dict[str, Any]:
    own = {name: value for name, value in fields.items() if name in Work.__struct_fields__}
    return {name: value for name, value in fields.items() if name not in own} | {
        "work": msgspec.structs.replace(work, **own)
    }


def row_of(**fields: Any) -> TestSummary:
    """A row with these fields."""
    return TestSummary(**_nested(fields, Work()))


def changed(row: TestSummary, **fields: Any) -> TestSummary:
    """The same row with other fields."""
    return msgspec.structs.replace(row, **_nested(fields, row.work))

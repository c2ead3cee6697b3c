"""Cells of the matrix of slowdowns that were planned and have no figure, each with its reason. Pure.

Whatever a launch says of itself decides which tests are the same work, so a bad cell could vanish without a word.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from milabench_ng.analysis.scoring.neighbours import cell_stats
from milabench_ng.analysis.summary.summary import TestSummary, name_of_row, suite_of_row


class LostCell(msgspec.Struct, frozen=True, kw_only=True):
    """A test that ran alone or in company, and is in no cell."""

    test: str
    why: str


def lost_cells(tests: Mapping[str, TestSummary]) -> tuple[LostCell, ...]:
    """Those of every suite in which a test ran alone; none while launches of the test are still to come."""
    cells = cell_stats(tests)
    shown = {label for pair, stat in cells.items() if stat is not None for label in pair}
    pairs = {label for pair in cells for label in pair}
    found: list[LostCell] = []
    for label, row in tests.items():
        victims = {
            name: one
            for name, one in tests.items()
            if one.company == {} and suite_of_row(name) == suite_of_row(label) and name != label
        }
        if label in shown or row.pending or not (victims or row.company == {}):
            continue
        why = "no pair of launches has both rates" if label in pairs else _why_no_pair(row, victims)
        if why:
            found.append(LostCell(test=name_of_row(label), why=why))
    return tuple(found)


def _why_no_pair(row: TestSummary, victims: Mapping[str, TestSummary]) -> str:
    """Why a row is the same work as nothing; empty for a test that was never to run alone."""
    if row.company == {}:
        return "ran alone, but no test with neighbors did the same work"
    if not row.work.options:
        return "none of its launches is readable"
    differences = [
        (row.work.differences(victim.work), name_of_row(name))
        for name, victim in victims.items()
        if (victim.work.workload, victim.work.scheme) == (row.work.workload, row.work.scheme)
    ]
    if not differences:
        return ""
    found, name = min(differences, key=lambda one: len(one[0]))
    return f"not the work of {name}: other {' and '.join(one.what for one in found)}"

"""What tests are by this installation's word: what sets their pace, and which are needed. Pure.

A bidder's own word would narrow what is allowed for.
"""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.profile import Profile, read_profile
from milabench_ng.model.shipped import find


def own_bounds(summary: Summary) -> Summary:
    """``summary`` with the bounds of the shipped profile's workloads; tests that it lacks have none."""
    known = _declared(summary.suite)
    tests = {label: row.bound_by(known.get(".".join(label.split(".")[:2]))) for label, row in summary.tests.items()}
    return msgspec.structs.replace(summary, tests=tests)


def both_sides(bid: Summary, delivered: Summary) -> tuple[Summary, Summary]:
    """A bid and a delivery with these bounds, and without a smaller test in place of a larger one that both ran.

    No run has both, but a baseline may.
    """
    profile = _shipped(bid.suite)
    tests = {} if profile is None else {profile.id_of(name): test for name, test in profile.tests.items()}
    both = bid.tests.keys() & delivered.tests.keys()
    spare = {
        label: f"it replaces {test.instead_of}, which both ran"
        for label, test in tests.items()
        if profile and test.instead_of and label not in both and profile.id_of(test.instead_of) in both
    }
    promised, found = (_without(own_bounds(side), spare) for side in (bid, delivered))
    return promised, found


def _without(summary: Summary, spare: dict[str, str]) -> Summary:
    tests = {label: row for label, row in summary.tests.items() if label not in spare}
    return msgspec.structs.replace(summary, tests=tests, unplanned=summary.unplanned | spare)


def _shipped(suite: str) -> Profile | None:
    path = find("profiles", suite)
    return None if path is None else read_profile(path)


def _declared(suite: str) -> dict[str, str | None]:
    """The bounds of a shipped profile's tests, by test."""
    builtin, stated = read_builtin(), _shipped(suite)
    tests = {} if stated is None else {stated.id_of(name): test.workload for name, test in stated.tests.items()}
    return {label: builtin[one].bound for label, one in tests.items() if one in builtin}

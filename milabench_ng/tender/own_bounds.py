"""What sets the pace of a test, by this installation's word: a bidder's own would narrow what is allowed for. Pure."""

from __future__ import annotations

import msgspec

from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.profile import read_profile
from milabench_ng.model.shipped import find


def own_bounds(summary: Summary) -> Summary:
    """``summary`` with the bounds of the shipped profile's workloads; tests that it lacks have none."""
    known = _declared(summary.suite)
    tests = {label: row.bound_by(known.get(".".join(label.split(".")[:2]))) for label, row in summary.tests.items()}
    return msgspec.structs.replace(summary, tests=tests)


def _declared(suite: str) -> dict[str, str | None]:
    """The bounds of a shipped profile's tests, by test."""
    path = find("profiles", suite)
    if path is None:
        return {}
    builtin, stated = read_builtin(), read_profile(path)
    workloads = {stated.id_of(name): test.workload for name, test in stated.tests.items()}
    return {label: builtin[one].bound for label, one in workloads.items() if one in builtin}

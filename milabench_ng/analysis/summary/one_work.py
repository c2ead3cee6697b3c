"""Whether all records of a row count the same items and did the same for each: only then does it have a rate. Pure.

Within a run the launches of a test are planned alike, so a record that disagrees with most of its row is invalid: it
counts as a failed launch, like an unreadable one. If there is no majority, or if two runs in one folder differ, it is
impossible to say which is right, and the folder is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.model.catalogue import AUTO
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import grouped
from milabench_ng.model.plain import plain, short
from milabench_ng.records.reading import Problem
from milabench_ng.records.work import declared


def of_one_work(source: str, results: Sequence[LaunchResult]) -> tuple[tuple[LaunchResult, ...], tuple[Problem, ...]]:
    """The results of ``source`` that agree with their row, and the others as files that are not records.

    Raises InputError if it is impossible to say which are right.
    """
    groups = grouped(results, lambda result: (result.label, result.run_id))
    usual: dict[str, LaunchResult] = {}
    odd: dict[str, Problem] = {}
    for (label, _), group in groups.items():
        one = _usual(source, group)
        _check(source, usual.setdefault(label, one), one)
        odd |= {each.file: _problem(each, one) for each in group if _differing(each, one)}
    return tuple(result for result in results if result.file not in odd), tuple(odd.values())


def _usual(source: str, group: Sequence[LaunchResult]) -> LaunchResult:
    """A result that most of ``group`` agree with."""
    kinds = grouped(group, lambda result: (result.work.planned, *declared(result.work).values()))
    most = max(kinds.values(), key=len)
    usual, count = most[0], len(most)
    if 2 * count <= len(group):
        for other in group:
            _check(source, usual, other)
    return usual


def _check(source: str, one: LaunchResult, other: LaunchResult) -> None:
    """Raise InputError if two results are not of the same work."""
    differing = _differing(one, other)
    if differing:
        found = "; ".join(f"{what} is {ours} and {theirs}" for what, (ours, theirs) in differing.items())
        raise InputError(
            f"{source}: {plain(one.file)} and {plain(other.file)} measure different workloads and cannot be "
            f"merged, though both are of {plain(one.label)}: {short(found)}. Report them separately, or remove "
            "a record that was changed"
        )


def _differing(result: LaunchResult, usual: LaunchResult) -> dict[str, tuple[str, str]]:
    """Both values of everything that differs. A launch whose batch size could not be found failed, and has none."""
    ours, theirs = declared(result.work), declared(usual.work)
    found = {what: (ours[what], theirs[what]) for what in ours if ours[what] != theirs[what]}
    planned = result.work.planned.differences(usual.work.planned)
    return found | {one.what: (one.run, one.baseline) for one in planned if AUTO not in (one.run, one.baseline)}


def _problem(result: LaunchResult, usual: LaunchResult) -> Problem:
    found = [f"{what} {ours} instead of {theirs}" for what, (ours, theirs) in _differing(result, usual).items()]
    return Problem(
        file=plain(result.file),
        reason=short(f"different work from the rest of its test: {', '.join(found)}"),
        test=result.test,
        job_id=result.job_id,
    )

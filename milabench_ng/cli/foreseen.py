"""What is known before a run of how its results will be marked, and whether they will have a score."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from milabench_ng.analysis.scoring.weights import find_weights, read_weights, spread_unplanned
from milabench_ng.analysis.summary import deviations
from milabench_ng.analysis.summary.summary import suite_of_row
from milabench_ng.fence.choosing import choose
from milabench_ng.model.plan import Launch, Plan
from milabench_ng.model.units import counted
from milabench_ng.node.inventory import read_inventory
from milabench_ng.node.storage import read_storage
from milabench_ng.records.marks import Mark, merged
from milabench_ng.run.outcome import marking
from milabench_ng.run.planning.planned_run import PlannedRun


def foreseen(planned: PlannedRun, weights: Path | None) -> str:
    """Why the results will not be comparable or have no score, in a line; empty if nothing says so."""
    return "; ".join((*(mark.sentence for mark in foreseen_marks(planned)), *no_score(planned.plan, weights)))


def foreseen_marks(planned: PlannedRun) -> tuple[Mark, ...]:
    """The marks that the results will have, by what is known before the run."""
    return tuple(merged(_marks(planned)))


def _marks(planned: PlannedRun) -> Iterator[Mark]:
    tier = choose(planned.capabilities, planned.isolation).tier(planned.capabilities) or "none"
    yield from marking.foreseen(planned, tier, read_storage(planned.request.dataroot))
    scaled = {one.test for one in planned.plan.measured if _scalable(planned, one)}
    yield from deviations.foreseen(planned.plan, planned.request.profile, read_inventory(), scaled)


def _scalable(planned: PlannedRun, launch: Launch) -> bool:
    """Whether a launch reads a dataset that differs by scale."""
    found = planned.catalogue.data_sets.get(planned.workload(launch).data_set(launch.arguments) or "")
    return found is not None and found.scalable


def no_score(plan: Plan, weights: Path | None) -> Iterator[str]:
    """Why suites of a plan will have no score: not all of their weighted tests are selected."""
    suites = sorted({launch.suite for launch in plan.measured})
    for suite in suites:
        file = find_weights(suite) if weights is None else read_weights(weights, suite)
        devices = max(len(plan.devices), len(plan.measured_slots))
        effective = {} if file is None else spread_unplanned(file.weights, devices)
        tests = [label for label in effective if suite_of_row(label) == suite and label not in plan.not_planned]
        left = [label for label in tests if label in plan.omitted]
        of = "" if len(suites) == 1 else f" of {suite}"
        if left:
            yield f"no score{of}: {len(tests) - len(left)} of {counted(len(tests), 'weighted test')}"

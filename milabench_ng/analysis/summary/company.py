"""Who ran beside the launches of a test, and how fast. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.summary import Pressing
from milabench_ng.model.grouping import gathered
from milabench_ng.model.plan import Launch
from milabench_ng.model.profile import name_of
from milabench_ng.model.stats import mean
from milabench_ng.records.manifest import Manifest

BUSY = "busy"
"""The option of antagonists for the share of the time in which they press."""
NeighborRates = dict[str, float]
"""Items per second of the other tests that ran at the same time, by name; a failed launch counts as 0."""


def company_of(manifests: Sequence[Manifest], results: Iterable[LaunchResult]) -> dict[str, NeighborRates]:
    """By row, who ran beside it on the node's other devices; nobody if it ran alone.

    Rows whose test ran on all slots at the same time, as usual, or uses all devices, are left out.
    """
    perfs = gathered(
        ((mnb.run_id, mnb.batch, result.test), result.perf if result.cause is None else 0.0)
        for result in results
        if (mnb := result.mnb) is not None
    )
    found: dict[str, dict[str, list[float]]] = {}
    for manifest in manifests:
        for batch in manifest.plan.batches:
            for launch in batch.launches:
                others = [other for other in batch.launches if other is not launch]
                if len(manifest.plan.slots) > 1 and _apart(launch, others):
                    rates = found.setdefault(launch.label, {})
                    for test in {other.test for other in others}:
                        rates.setdefault(name_of(test), []).extend(perfs.get((manifest.run_id, batch.number, test), ()))
    return {
        label: {name: mean(rates) if rates else 0.0 for name, rates in beside.items()}
        for label, beside in found.items()
    }


def pressing_of(manifests: Sequence[Manifest]) -> dict[str, Pressing]:
    """By name, the tests that are only company and state the share of the time in which they press."""
    return {
        name_of(launch.test): Pressing(workload=launch.workload, busy=busy)
        for manifest in manifests
        for launch in manifest.plan.launches
        if not launch.measured and isinstance(busy := launch.arguments.get(BUSY), int | float) and busy >= 0
    }


def _apart(launch: Launch, others: Sequence[Launch]) -> bool:
    return launch.measured and not launch.scheme.spreads and launch.test not in {other.test for other in others}

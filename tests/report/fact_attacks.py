"""Attacks on small facts of a launch: latencies, what was computed when, starting, waiting, memory, power."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contradiction_attacks import measured_power
from evidence_attacks import throttling_not_told
from tampering import Change, Tamper, environment, fence, record, records, rewrite


def latency(*histogram: list[int]) -> Change:
    """This histogram for every batch of every slice: ``[bucket, batches]``; 0 batches are as many as steps."""

    def change(content: dict[str, Any]) -> None:
        for rank in content["mnb"]["ranks"]:
            for row in rank["slices"]:
                row[5:] = [row[5] if len(row) > 5 else None, [[bucket, many or row[3]] for bucket, many in histogram]]

    return change


def noted(content: dict[str, Any]) -> None:
    """Seconds of a part that the workload does not have."""
    for rank in content["mnb"]["ranks"]:
        for row in rank["slices"]:
            row[5:] = [*row[5:7], *[None, []][len(row[5:7]) :], {"save_s": 0.1}]


def untold(name: str, *steps: str) -> Change:
    """What was computed at these steps, or at any; also by a test that tells only some of it."""

    def change(content: dict[str, Any]) -> None:
        told = content["mnb"]["ranks"][0][name]
        if not told:
            raise LookupError(name)
        for step in steps or tuple(told):
            del told[step]

    return change


def nothing_computed(content: dict[str, Any]) -> None:
    for name in ("losses", "gradient_norms", "digests"):
        for rank in content["mnb"]["ranks"]:
            rank[name] = {}


def measured(folder: Path) -> None:
    """Where no GPU told its power, all do."""
    for path in sorted(folder.glob("*.J*.json")):
        if '"power_w": {' not in path.read_text():
            rewrite(path, lambda content: measured_power(content, 650.0, 90.0))


def halved(content: dict[str, Any]) -> None:
    """Half the power, and the energy as it was."""
    for source, values in content["mnb"]["telemetry"].items():
        if source.startswith("gpu:"):
            values["power_w"] |= {name: values["power_w"][name] / 2 for name in ("min", "mean", "max")}


def thrifty(content: dict[str, Any]) -> None:
    """Power and energy of the window lowered to 0.6, and the counters at the edges as they were."""
    for source, values in content["mnb"]["telemetry"].items():
        if source.startswith("gpu:"):
            values["power_w"] |= {name: values["power_w"][name] * 0.6 for name in ("min", "mean", "max")}
            energy = values["energy_j"]
            energy["max"] = energy["min"] + 0.6 * (energy["max"] - energy["min"])


def without_gpus(content: dict[str, Any]) -> None:
    kept = content["mnb"]["telemetry"]
    content["mnb"]["telemetry"] = {source: kept[source] for source in kept if not source.startswith("gpu:")}


def after_measuring(change: Change) -> Tamper:
    """A change of all records of GPUs that told their power."""

    def tamper(folder: Path) -> None:
        measured(folder)
        records(change)(folder)

    return tamper


def held_down_unsupported(content: dict[str, Any]) -> None:
    """It is said that no GPU can tell."""
    throttling_not_told(content)
    for edge in content["mnb"]["conditions"].values():
        edge["unsupported"] = ["sw_thermal", "hw_thermal", "hw_power_brake", *edge.get("unsupported", [])]


MORE_RAM = fence(usage={"cpu_usec": 3_000_000, "memory_peak_bytes": 1 << 60})

ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "a loss left out": ("R33", record(untold("losses", "10")), "rank 0 has no loss at step 10"),
    "losses left out": ("R33", record(untold("losses")), "rank 0 has no loss at step 1"),
    "gradient norms left out": ("R33", record(untold("gradient_norms", "2")), "rank 0 has no gradient norm at step 2"),
    "digest left out": ("R33", record(untold("digests")), "rank 0 has no digest of the parameters at step 100"),
    "nothing computed anywhere": ("R33", records(nothing_computed), "rank 0 has no loss at step 1"),
    "RAM above its limit": ("R16", record(MORE_RAM), "bytes of RAM, its limit was"),
    "files in memory": ("R31", record(environment(MNB_STORAGE="/dev/shm/files")), "which is not below the data root"),
    "power halved": ("gpu-counters", after_measuring(halved), "W in the"),
    "GPUs not sampled": ("R33", after_measuring(without_gpus), "which the GPU reported before it"),
    "throttling told by no launch": ("R33", records(throttling_not_told), "and nothing says why"),
    "throttling that no GPU can tell": (
        "R25",
        records(held_down_unsupported),
        "does not report for how long hw_thermal held its clocks down",
    ),
}
"""By name: the rule that finds it, what is done, and part of the reason."""

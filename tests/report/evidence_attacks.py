"""Attacks by what is not told: optional evidence left out, another version claimed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tampering
from tampering import Change, Tamper, fence, record, records

from milabench_ng import __version__


def without(*names: str) -> Change:
    """Keys of the ``mnb`` part taken out."""

    def change(content: dict[str, Any]) -> None:
        for name in names:
            del content["mnb"][name]

    return change


def emptied(name: str, value: Any) -> Change:
    """A key of the ``mnb`` part without its content."""
    return lambda content: content["mnb"].update({name: value})


def process_not_said(content: dict[str, Any]) -> None:
    for share in content["mnb"]["isolation"].values():
        del share["proc"]["confinement"]


def throttling_not_told(content: dict[str, Any]) -> None:
    for edge in content["mnb"]["conditions"].values():
        for state in edge["gpus"].values():
            state["throttled_ns"] = {}


def throttling_excused(content: dict[str, Any]) -> None:
    """A read of something else failed."""
    throttling_not_told(content)
    for edge in content["mnb"]["conditions"].values():
        edge["errors"] = {f"{uuid} vbios": "NVML error 999" for uuid in edge["gpus"]}


def layers_not_said(content: dict[str, Any]) -> None:
    if not content["mnb"]["precision"]["dtypes"]:
        raise LookupError("a launch with parameters")
    content["mnb"]["precision"]["layer_dtype"] = None


def version(name: str) -> Tamper:
    """Everything says that it was made with this version."""

    def tamper(folder: Path) -> None:
        tampering.rewrite(folder / "run.json", lambda content: content.update(version=name))
        records(lambda content: content["mnb"].update(version=name))(folder)

    return tamper


def told_less_by(name: str) -> Tamper:
    """A version that is today's, written as if it were another, and told nothing of the node."""

    def tamper(folder: Path) -> None:
        version(name)(folder)
        records(emptied("telemetry", {}))(folder)

    return tamper


def older_ledger(folder: Path) -> None:
    """A ledger as versions wrote it that did not read code and data: nobody asks for what they read."""
    events = tampering.ledger_events(folder)
    kept = [(utc, event) for utc, event in events if event["event"] not in ("CodeSeen", "DataSeen")]
    kept[0][1]["schema"] = 1
    tampering.write_events(folder, kept)


def counters_fall(content: dict[str, Any]) -> None:
    """A launch of an earlier run on the same node."""
    for edge in content["mnb"]["surroundings"].values():
        edge["machinery_cpu_s"] = 0.0


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "surroundings left out": ("R33", record(without("surroundings")), "it has no surroundings before it"),
    "surroundings left out everywhere": ("R33", records(without("surroundings")), "it has no surroundings after it"),
    "span of the telemetry left out": ("R33", records(emptied("sampled", None)), "it has no span of its telemetry"),
    "telemetry left out": ("R33", records(emptied("telemetry", {})), "it has no telemetry of host:node"),
    "CPU speed check": ("R33", records(emptied("host_pace", {})), "it has no CPU speed check of device 1 before it"),
    "usage left out": ("R33", records(fence(usage=None)), "it has no CPU time that the kernel counted for device 1"),
    "confinement left out": ("R33", records(process_not_said), "it has no confinement or scheduling of the process"),
    "throttling left out": (
        "R33",
        record(throttling_not_told),
        "does not report hw_power_brake, hw_thermal, sw_thermal",
    ),
    "throttling excused by another read": (
        "R33",
        record(throttling_excused),
        "does not report hw_power_brake, hw_thermal, sw_thermal",
    ),
    "type of the layers left out": ("R33", records(layers_not_said), "it has no type in which its layers computed"),
    "counters of an earlier run": ("R27", record(counters_fall), "machinery_cpu_s is 0, and was"),
    "newer version": ("R33", version("99.0.0"), "made with mnb 99.0.0, this is"),
    "older version": ("R33", version("0.0.1"), "but the rules require"),
    "telemetry left out of a version written otherwise": (
        "R33",
        told_less_by(f"{__version__}0"),
        "it has no telemetry of host:node",
    ),
    "older ledger": ("R33", older_ledger, "older version: its ledger is of schema 1"),
}
"""By name: the rule that finds it, what is done, and part of the reason."""

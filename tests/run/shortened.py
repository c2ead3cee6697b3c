"""Honest runs that tests make: no rule may accuse one, but of what so short a run on CPUs cannot keep."""

from __future__ import annotations

from pathlib import Path

import msgspec

from milabench_ng.records.marks import MarkKind
from milabench_ng.run.persistence.resuming import read_manifest
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verify import verify

LIFTED: dict[str, tuple[object, str]] = {
    "repeat": (1, "each repeat costs seconds"),
    "least_sessions": (1, "sessions are hours apart"),
    "signed": (False, "a folder has no signature"),
    "margin": (None, "so few repeats have no interval"),
    "profile": (None, "it has one or two tests"),
    "weights": (None, "so have the weights"),
    "arguments": ({}, "they are those of the standard suite"),
    "ceiling": (None, "it knows no CPU"),
    "data": ({}, "they are small, and read from memory"),
    "every_gpu": (False, "there is none"),
    "whole_gpus": (False, "there is none"),
    "isolation": (None, "what can be fenced is up to the machine, and told"),
    "storage_refused": ((), "results lie where the machine has its temporary files"),
    "mitigations": (False, "they are those of the machine's kernel"),
    "listed": (("MNB_PYCACHE", "MNB_WHEELS", "PYTHONPYCACHEPREFIX"), "tests compile once, and read one wheel"),
}
"""What the shipped rules ask for and a shortened run cannot keep: what is asked instead, and why."""

MARKS: dict[MarkKind, str] = {
    "window shortened": "a second and a half instead of ten",
    "data scale": "small data",
    "partly isolated": "what can be fenced is up to the machine",
    "not isolated": "so it is",
    "siblings shared": "a machine of two CPUs may have one core",
    "scheduling": "the tests may be reniced",
    "foreign CPU load": "other tests run beside it",
    "orchestrator paused": "so they keep it waiting",
    "CPU quota": "the machine may be a container",
    "telemetry missing": "a busy machine, and a window of a second and a half",
    "held back by a CPU quota": "so it may",
}
"""Marks that such a run has on any machine, and says so."""


def accused(folder: Path, **lifted: object) -> dict[str, tuple[str, ...]]:
    """What rules and refused doubts say against an honest run, without demands and by the shipped rules.

    ``lifted``: what else this run cannot keep, and what is asked instead. Prints the verdicts, for who counts doubts.
    """
    window_s = read_manifest(folder).window_rule.length_s
    instead = {key: value for key, (value, _) in LIFTED.items()} | {"window_s": window_s} | lifted
    shipped = load_rules("standard")
    accepted = shipped.marks_accepted | dict.fromkeys(MARKS)
    demanding = msgspec.structs.replace(shipped, marks_accepted=accepted, **instead)
    found = [verify(folder, rules) for rules in (Rules(window_s=window_s), demanding)]
    for one in found:
        print(one.sentence)
    return {
        name: reasons
        for one in found
        for name, reasons in (
            *((ruling.id, ruling.reasons) for ruling in one.having("fail")),
            *((doubt.name, doubt.reasons) for doubt in one.doubts if doubt.refused),
        )
    }


def backend(folder: Path) -> str:
    """What held the tenants of a run."""
    return read_manifest(folder).fence.backend

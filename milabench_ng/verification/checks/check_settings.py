"""The rule on settings: what is not on the list of the closed division puts a run into the open one, by name.

As in SPEC's run rules, the list says what may be set, not what may not: a setting that nobody thought of is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from milabench_ng.node.drivers.visibility import visible
from milabench_ng.records.ledger import CodeSeen
from milabench_ng.records.record import Record
from milabench_ng.records.worker_variables import STORAGE_VARIABLE, listed
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged

_PINNED = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""The only value that a variable may have."""


def settings(evidence: Evidence) -> Finding:
    """The environment of the workers is on the list of the closed division."""
    if not evidence.rules.closed:
        return OFF
    return judged(f"open division: the environment {what}" for what in _environment(evidence))


def _environment(evidence: Evidence) -> Iterator[str]:
    own, told = evidence.rules.listed, any(isinstance(event, CodeSeen) for event in evidence.ledger.events)
    for one in evidence.good:
        mnb = one.record.mnb
        for name, value in mnb.environment.items():
            if not listed(name, value) and name not in own and f"{name}={value}" not in own:
                yield f"has {name}={value}"
        yield from (f"has {text}" for name, text in _odd_values(one.record) if name not in own)
        if told:
            workload = evidence.as_ran.get(mnb.launch.workload)
            stores = workload is not None and workload.stores
            yield from (f"is recorded without {name}" for name in _lacking(mnb.environment, stores=stores))


def _odd_values(record: Record) -> Iterator[tuple[str, str]]:
    """Variables whose value is not the one that mnb gives, with what is wrong."""
    mnb, environment = record.mnb, record.mnb.environment
    for name, value in _PINNED.items():
        if environment.get(name, value) != value:
            yield name, f"{name}={environment[name]}"
    devices = ",".join(one.uuid for one in mnb.devices if one.uuid) or "CPUs"
    for name, value in visible(mnb.devices).items():
        if environment.get(name, value) != value:
            yield name, f"{name}={environment[name]}, but its devices are {devices}"
    compiled = environment.get("PYTHONPYCACHEPREFIX")
    if compiled is not None and not PurePath(compiled).is_relative_to(environment.get("TMPDIR", "/nowhere")):
        yield "PYTHONPYCACHEPREFIX", f"PYTHONPYCACHEPREFIX={compiled}, which is not a folder of the session"
    storage = environment.get(STORAGE_VARIABLE)
    if storage is not None and not _inside(storage, record.dataroot):
        yield STORAGE_VARIABLE, f"{STORAGE_VARIABLE}={storage}, which is not below the data root {record.dataroot}"


def _inside(folder: str, root: str) -> bool:
    below = PurePath(os.path.relpath(folder, root)).parts  # by name alone: this node's disk does not matter
    return bool(below) and below[0] != ".."


def _lacking(environment: Mapping[str, str], *, stores: bool) -> Iterator[str]:
    """The variables that every worker has, and that the record has not got; ``stores``: it writes files."""
    always = ("PATH", "CUDA_VISIBLE_DEVICES", *_PINNED, "PYTHONPYCACHEPREFIX", "TMPDIR")
    yield from (name for name in (*always, *([STORAGE_VARIABLE] if stores else [])) if name not in environment)

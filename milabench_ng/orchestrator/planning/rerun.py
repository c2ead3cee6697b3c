"""A record turned back into a profile, to run its test again."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.files import LARGE, read_json
from milabench_ng.plain import plain, short
from milabench_ng.plan import Launch
from milabench_ng.profile import Scheme
from milabench_ng.records.isolation import IoEvidence
from milabench_ng.records.record import Data, Neighbours


class Again(msgspec.Struct, frozen=True):
    """A profile of one test, and how many tenants ran it side by side."""

    text: str
    tenants: int
    classic_data: bool = False
    """It read what 2020 generated."""


class _Fenced(msgspec.Struct, frozen=True):
    io: IoEvidence | None = None


class _Ours(msgspec.Struct, frozen=True):
    launch: Launch
    neighbours: Neighbours
    data: Data | None = None
    isolation: dict[str, _Fenced] = {}


class _Record(msgspec.Struct, frozen=True):
    mnb: _Ours


def profile_of(record: Path) -> Again:
    """The profile that makes the launch of ``record`` again. A launch over K devices is made over K devices."""
    try:
        ours = msgspec.convert(read_json(record, LARGE), _Record).mnb
    except msgspec.ValidationError as error:
        raise InputError(f"{plain(record)}: not a record of mnb: {short(error)}") from None
    launch = ours.launch
    if launch.slots is not msgspec.UNSET or ours.neighbours.who is not msgspec.UNSET:
        raise InputError(
            f"{plain(record)}: made on a part of a device or beside other tests, which a profile of its test alone "
            "cannot make again; run the profile of its run.json"
        )
    _, _, test = launch.test.rpartition(".")
    several = launch.scheme.spreads
    definition: dict[str, object] = {
        "workload": launch.workload,
        "arguments": {name: value for name, value in launch.arguments.items() if value is not None},
        "partition_scheme": {"type": Scheme.NORMAL if several else Scheme.PER_GPU},
        "data_scale": launch.data_scale,
    }
    limited = next((fenced.io for fenced in ours.isolation.values() if fenced.io), None)
    if limited:
        rates = {"read": limited.read_bytes_per_s, "write": limited.write_bytes_per_s}
        definition["io"] = {name: f"{rate} B/s" for name, rate in rates.items() if rate}
    tenants = len(launch.devices) if several else ours.neighbours.planned + 1
    classic = ours.data is not None and ours.data.kind == "classic"
    return Again(text=json.dumps({test: definition}), tenants=tenants, classic_data=classic)

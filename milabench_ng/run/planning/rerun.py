"""Turns a record back into a profile, to run its test again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.catalogue import normal_name
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, parse_json, read_content, read_text, require_file
from milabench_ng.model.known_files import refuse_other
from milabench_ng.model.plain import plain
from milabench_ng.model.plan import Device, Launch, hardware
from milabench_ng.model.profile import Scheme, Test, name_of, parse_profile, suite_of
from milabench_ng.model.shipped import find, to_run
from milabench_ng.records.names import MANIFEST
from milabench_ng.records.reading import Problem, ReadRecord, read_record
from milabench_ng.records.record import Mnb

_WANTED = "Give a file of a result folder, such as results/standard.vae.J0.0.*.json"


class Again(msgspec.Struct, frozen=True):
    """What repeats a launch: the profile with its test, and how many tenants ran it side by side."""

    suite: str
    """As in the record, like the test, so that reports compare both."""
    test: str
    text: str
    """The profile: the test as it was recorded, among the others of a shipped suite."""
    tenants: int
    devices: tuple[Device, ...] = ()
    """What it ran on."""
    classic_data: bool = False
    """Whether it read the noise pictures of milabench 2020."""
    cache_shares: bool = False
    """Whether its tenants had parts of the last-level cache of their own."""


def profile_of(record: Path) -> Again:
    """The profile that repeats the launch of ``record``. A launch over K devices again uses K devices."""
    folder, what = (record, "a folder") if os.path.isdir(record) else (record.parent, "the manifest of a run")
    if os.path.isdir(record) or (record.name == MANIFEST and os.path.exists(record)):
        known = next((path for path in sorted(folder.glob("*.J*.json")) if _ran_alone(path)), None)
        instead = f"Give a record in {plain(folder)}, such as {plain(known)}" if known else _WANTED
        raise InputError(f"{plain(record)}: this is {what}, not a record. {instead}")
    require_file(record, _WANTED)
    content = read_content(record, LARGE)
    found = read_record(content, str(record))
    if not isinstance(found, ReadRecord):
        if isinstance(found, Problem):
            raise InputError(f"{plain(record)}: {found.reason}")
        refuse_other(parse_json(content, str(record), numbers="any"), "record", str(record))
        raise InputError(f"{plain(record)}: not a record of a launch. {_WANTED}")
    ours = found.record.mnb
    launch = ours.launch
    if _beside_others(ours):
        raise InputError(
            f"{plain(record)}: this launch ran on a part of a device or next to other tests, which rerun "
            f"cannot repeat. Run its whole profile: mnb jobs {to_run(suite_of(launch.test))}"
        )
    test = name_of(launch.test)
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
    divided = any(fenced.requested.cache for fenced in ours.isolation.values())
    return Again(
        suite=suite_of(launch.test),
        test=test,
        text=_among_others(suite_of(launch.test), test, definition, launch),
        tenants=tenants,
        devices=tuple(ours.devices),
        classic_data=classic,
        cache_shares=divided,
    )


def _beside_others(ours: Mnb) -> bool:
    """Whether a launch had a part of a device, or other tests beside it."""
    return ours.launch.slots is not msgspec.UNSET or ours.neighbours.who is not msgspec.UNSET


def _ran_alone(record: Path) -> bool:
    """Whether a file is a record of a launch that can be repeated."""
    found = read_record(read_content(record, LARGE), str(record))
    return isinstance(found, ReadRecord) and not _beside_others(found.record.mnb)


def _among_others(suite: str, test: str, definition: object, launch: Launch) -> str:
    """A profile of the test and the others of a shipped suite: its score then says which of them did not run.

    It is the shipped one, to the letter, if the test ran as that says.
    """
    shipped = find("profiles", suite)
    if shipped is None:
        return json.dumps({test: definition})
    text = read_text(shipped)
    made = json.dumps({**json.loads(text), test: definition})
    as_shipped, as_recorded = (parse_profile(suite, one, str(shipped)).tests.get(test) for one in (text, made))
    same = isinstance(as_shipped, Test) and _resolved(as_shipped, launch) == as_recorded
    return text if same else made


def _resolved(test: Test, launch: Launch) -> Test:
    """``test`` as a record states it: with all arguments of its workload, and the class of memory that was taken."""
    known = read_builtin().get(test.workload)
    stated = {
        normal_name(name): value.get(launch.memory_classes.get(name, "")) if isinstance(value, dict) else value
        for name, value in test.arguments.items()
    }
    arguments = {**(known.defaults if known else {}), **stated}
    return Test(
        workload=test.workload,
        arguments={name: value for name, value in arguments.items() if value is not None},
        partition_scheme=test.partition_scheme,
        data_scale=test.data_scale,
        io=test.io,
    )


def refuse_other_devices(record: Path, recorded: Sequence[Device], chosen: Sequence[Device]) -> None:
    """Raise InputError where work recorded on GPUs would run on CPUs, or the other way round."""
    before, now = (any(device.kind != "cpu" for device in devices) for devices in (recorded, chosen))
    if before == now:
        return
    there, here = hardware(recorded), hardware(chosen)
    use = f"--tenants {len(chosen)}" if before else f"--gpus {','.join(str(device.index) for device in chosen)}"
    raise InputError(
        f"{plain(record)}: recorded on {there}, and this run would use {here}. Run it on such a node, or ask for these "
        f"devices with {use}"
    )

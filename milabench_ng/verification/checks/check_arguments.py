"""The rules on arguments: what the profile states, what was planned and what ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from milabench_ng.model.catalogue import Scalar, normal_name
from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import choose_entries
from milabench_ng.model.plain import plain
from milabench_ng.model.plan import Launch
from milabench_ng.model.profile import IoShare, Profile, name_of
from milabench_ng.model.similar import meant_or_all
from milabench_ng.model.units import parse_bytes_per_second
from milabench_ng.node.gpus import smallest_memory
from milabench_ng.records.isolation import Isolation
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.record import Record
from milabench_ng.verification.checks.check_plan import read_stated
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Finding, judged, unknown
from milabench_ng.verification.rules import Rules

IoRates = tuple[float | None, float | None]
"""Bytes a second to read and to write."""


def arguments(evidence: Evidence) -> Finding:
    """The plan has the profile's arguments, and nothing was changed on the command line."""
    stated, pinned = read_stated(evidence.manifest), evidence.profile
    found = judged(_not_as_stated(evidence, stated))
    if stated is None or found.result != "pass" or pinned.demanded not in (None, pinned.used):  # R6 says that
        return found
    return next(map(unknown, unknown_tests(evidence.rules, stated)), found)


def unknown_tests(rules: Rules, stated: Profile) -> Iterator[str]:
    """Of which tests that ``stated`` has not the rules demand options: perhaps misspelled, so nobody is accused."""
    for name in rules.arguments:
        if name != "*" and name not in stated.tests:
            where = f"arguments: profile {plain(stated.suite)} has no test {plain(repr(name))}"
            yield f"{where}{meant_or_all(name, stated.tests)}. Correct the rules"


def as_planned(evidence: Evidence) -> Finding:
    """Every launch ran as the plan has it."""
    return judged(_not_as_planned(evidence, read_stated(evidence.manifest)))


def _not_as_planned(evidence: Evidence, stated: Profile | None) -> Iterator[str]:
    planned = {
        (batch.number, launch.label, launch.job_id, launch.measured): launch
        for batch in evidence.manifest.plan.batches
        for launch in batch.launches
    }
    for name, record in evidence.named():
        launch = planned.get((record.mnb.batch, record.mnb.label, record.job_id, record.mnb.launch.measured))
        search = record.mnb.batch_search
        if launch is not None and launch.auto_batch:
            yield from (f"{name}: {why}" for why in _not_as_searched(record, stated))
            if search is not msgspec.UNSET and search.size is not None:
                launch = launch.sized(search.size)
        if launch is not None and launch != record.mnb.launch:
            yield f"{name}: it ran {_changed(launch, record.mnb.launch)}"
        if record.call.arguments != record.mnb.launch.arguments:
            yield f"{name}: the arguments of its call differ from those of its launch"
        if any(_io(one) != _io_stated(record, stated) for one in record.mnb.isolation.values() if record.success):
            yield f"{name}: its I/O limit differs from the profile"
        if any(one.requested.cache for one in record.mnb.isolation.values()):
            yield f"{name}: it had parts of caches of its own, which the profile does not say"


def _io(held: Isolation) -> IoRates:
    return (held.io.read_bytes_per_s, held.io.write_bytes_per_s) if held.io else (None, None)


def _io_stated(record: Record, stated: Profile | None) -> IoRates:
    test = stated.tests.get(name_of(record.mnb.launch.test)) if stated else None
    share = (test.io if test else None) or IoShare()
    read, write = share.read, share.write
    return (
        None if read is None else parse_bytes_per_second(read, "read"),
        None if write is None else parse_bytes_per_second(write, "write"),
    )


def _not_as_searched(record: Record, stated: Profile | None) -> Iterator[str]:
    """What is wrong with the search for an automatic batch size."""
    search = record.mnb.batch_search
    if search is msgspec.UNSET:
        yield "its batch size is automatic, but the record does not say how it was found"
        return
    if search.size is None and record.success:
        yield "no batch size was found, but the record says that the launch succeeded"
    if not search.follows:
        yield f"batch size {search.size} does not follow from the trials that it names"
    test = stated.tests.get(name_of(record.mnb.launch.test)) if stated else None
    if test is not None and search.fraction != test.memory_fraction:
        yield f"its batch size fills {search.fraction:g} of the memory, but the profile says {test.memory_fraction:g}"


def _changed(planned: Launch, ran: Launch) -> str:
    keys = dict.fromkeys([*planned.arguments, *ran.arguments])
    pairs = [(key, planned.arguments.get(key), ran.arguments.get(key)) for key in keys]
    changed = [f"with {key} {one!r} instead of {other!r}" for key, other, one in pairs if one != other]
    return ", ".join(changed) or "otherwise than planned"


def _not_as_stated(evidence: Evidence, stated: Profile | None) -> Iterator[str]:
    planned = evidence.manifest.plan
    try:
        demands = _demands(evidence.manifest, stated) if stated else {}
    except InputError as error:
        yield str(error)
        return
    declared, as_ran = evidence.declared, evidence.as_ran
    seen: dict[str, Mapping[str, Scalar | None]] = {}
    for launch in planned.launches:
        if launch.overrides:
            yield f"{launch.test}: changed on the command line: {', '.join(launch.overrides)}"
        name = name_of(launch.test)
        demanded, classes = demands.get(name, ({}, {}))
        own = evidence.rules.arguments
        known = as_ran.get(launch.workload) if stated else None  # what one of 2020 states, it does not say
        defaults = known.defaults if known and launch.test not in seen else {}
        # A version that lacked an option names none; to leave one out hides no more than to say its default would.
        named = {option: value for option, value in defaults.items() if option in launch.arguments}
        now = declared.get(launch.workload)
        arguments = now.completed(launch.arguments) if now else launch.arguments
        for option, value in (named | own.get("*", {}) | demanded | own.get(name, {})).items():
            if arguments.get(option) != value:
                yield f"{launch.test}: {option} is {arguments.get(option)!r}, but the rules require {value!r}"
        if known and launch.test not in seen:
            unknown_options = sorted(launch.arguments.keys() - known.defaults.keys())
            yield from (f"{launch.test}: {launch.workload} has no option {option}" for option in unknown_options)
        if launch.auto_batch and evidence.rules.closed and launch.test not in seen:
            yield f"{launch.test}: its batch size is automatic, and a closed result has the one that the profile states"
        if launch.memory_classes != classes:
            yield f"{launch.test}: its memory classes are {launch.memory_classes}, {classes} follow from the devices"
        if seen.setdefault(launch.test, launch.arguments) != launch.arguments:
            yield f"{launch.test}: its launches have different arguments"


def _demands(manifest: Manifest, stated: Profile) -> dict[str, tuple[dict[str, Scalar], dict[str, str]]]:
    """The arguments that the profile states for the manifest's devices, and the memory classes, by planned test.

    Raises InputError for a device that reaches no class.
    """
    memory = smallest_memory(manifest.plan.devices, manifest.inventory.gpus, manifest.plan.tenants_per_device)
    planned = {name_of(launch.test) for launch in manifest.plan.launches}
    return {
        name: choose_entries({normal_name(key): value for key, value in test.arguments.items()}, memory, name)
        for name, test in stated.tests.items()
        if name in planned
    }

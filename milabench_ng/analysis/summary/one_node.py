"""Whether all runs in a folder were made on one node with the same software: only then are they repeats. Pure.

GPUs are identified by their UUIDs, which stay the same in containers and virtual machines, after reboots and under
another hostname: runs that share a GPU share a node, and runs without a common GPU do not. A node without GPUs is
identified by its hostname or, if a container was given another, its boot id. In either case processors and memory are
the same in all runs. All runs used the same devices, so that rows come from the same node with the same tenants, and
runs of one suite used the same profile. Values that are not recorded are not compared. Sessions continued with
``--resume`` are one run with one manifest: it refuses differences unless the user accepts them, which the ledger
records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import msgspec

from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import grouped
from milabench_ng.model.plain import names_of, plain, short
from milabench_ng.model.plan import Device
from milabench_ng.model.units import format_bytes
from milabench_ng.records.manifest import Manifest

_NAMED = 2
"""How many GPUs of a run are named in a message."""
_SAME_MEMORY = 0.01
"""The memory that a kernel reports varies by less than this between boots; a missing module is more."""


class MadeOn(msgspec.Struct, frozen=True, kw_only=True):
    """Where and with what launches were made, according to a manifest or records; unknown values are empty."""

    place: str
    """How messages name them: by folder, else by run."""
    hosts: frozenset[str] = frozenset()
    boots: frozenset[str] = frozenset()
    boards: frozenset[str] = frozenset()
    """UUIDs of the node's visible GPUs (whole GPUs only)."""
    machine: str = ""
    processors: str = ""
    memory: int = 0
    """In bytes."""
    worked: frozenset[int] = frozenset()
    """Indices of the devices that launches were planned for or, without a plan, ran on."""
    profiles: dict[str, str] = {}
    """SHA-256 by suite."""
    devices: dict[int, str] = {}
    """UUIDs of the GPUs used, by index."""
    models: frozenset[str] = frozenset()
    versions: dict[str, str] = {}
    """Versions of packages, driver and kernel."""

    def joined_with(self, other: MadeOn) -> MadeOn:
        """The combined knowledge of both."""
        return MadeOn(
            place=self.place,
            hosts=self.hosts | other.hosts,
            boots=self.boots | other.boots,
            boards=self.boards | other.boards,
            machine=self.machine or other.machine,
            processors=self.processors or other.processors,
            memory=self.memory or other.memory,
            worked=self.worked or other.worked,
            profiles=self.profiles | other.profiles,
            devices=self.devices | other.devices,
            models=self.models or other.models,
            versions=self.versions | other.versions,
        )


def check_one_node(source: str, manifests: Sequence[Manifest], results: Sequence[LaunchResult]) -> None:
    """Raise InputError unless the runs in the folder ``source`` are repeats on one node with the same software."""

    def joined(known: MadeOn, other: MadeOn) -> MadeOn:
        differing = "; ".join(_unlike(known, other))
        if differing:
            raise InputError(
                f"{source}: {plain(known.place)} and {plain(other.place)} are not repeats on one node: "
                f"{short(differing)}. Report each folder separately, and compare them: mnb report FOLDER "
                "--compare OTHER"
            )
        return known.joined_with(other)

    made = list(_made(manifests, results))
    if made:
        reduce(joined, made)


def _made(manifests: Sequence[Manifest], results: Sequence[LaunchResult]) -> Iterator[MadeOn]:
    """What each run's manifest says or, for a run without one, its records."""
    groups = grouped(results, lambda result: (result.run_id, result.hostname))
    places = {result.run_id: os.path.dirname(result.file) for result in reversed(results)}  # of its first record
    promised = {manifest.run_id for manifest in manifests}
    for manifest in manifests:
        yield _by_manifest(manifest, places.get(manifest.run_id) or f"run {manifest.run_id}")
    for (run_id, host), group in groups.items():
        if run_id not in promised:
            yield _by_records(host, group, places[run_id] or (f"run {run_id}" if run_id else f"records of {host}"))


def _by_manifest(manifest: Manifest, place: str) -> MadeOn:
    node, devices = manifest.inventory, manifest.plan.devices
    own = {"driver": node.driver, "kernel": node.kernel}
    return MadeOn(
        place=place,
        hosts=_known(node.hostname),
        boots=_known(node.boot_id),
        boards=frozenset(gpu.parent or gpu.uuid for gpu in node.gpus),
        machine=node.machine or "",
        processors=node.cpus.text,
        memory=node.memory_bytes,
        worked=frozenset(device.index for device in devices),
        profiles={manifest.plan.suite: manifest.profile.sha256},
        devices=_uuids(devices),
        models=frozenset(device.name for device in devices if device.name),
        versions={"mnb": manifest.version, **manifest.software, **{name: of for name, of in own.items() if of}},
    )


def _by_records(host: str, results: Sequence[LaunchResult], place: str) -> MadeOn:
    devices = [device for result in results for device in result.hardware]
    return MadeOn(
        place=place,
        hosts=_known(host),
        boards=frozenset(_uuids(devices).values()),
        worked=frozenset(device.index for device in devices),
        devices=_uuids(devices),
        models=frozenset(device.name for device in devices if device.name),
    )


def _known(text: str | None) -> frozenset[str]:
    return frozenset((text,)) if text else frozenset()


def _uuids(devices: Iterable[Device]) -> dict[int, str]:
    """UUIDs of whole GPUs, since a MIG instance gets a new UUID when it is recreated."""
    return {device.index: device.uuid for device in devices if device.kind == "gpu" and device.uuid}


def _unlike(known: MadeOn, other: MadeOn) -> Iterator[str]:
    """Differences in what must be the same, in words."""
    if _same_node(known, other):
        yield from _changed(known, other)
    else:
        yield f"they are of two nodes, {_node(known)} and {_node(other)}"
    if known.models and other.models and known.models != other.models:
        yield f"they ran on {_listed(known.models)} and on {_listed(other.models)}"
    if known.worked and other.worked and known.worked != other.worked:
        yield f"they used {_indices(known.worked)} and {_indices(other.worked)}"
    for suite in sorted(known.profiles.keys() & other.profiles.keys()):
        if known.profiles[suite] != other.profiles[suite]:
            yield f"profile {suite} was {known.profiles[suite][:12]} and {other.profiles[suite][:12]}"
    for name in sorted(known.versions.keys() & other.versions.keys()):
        if known.versions[name] != other.versions[name]:
            yield f"{name} was {known.versions[name]} and {other.versions[name]}"


def _changed(known: MadeOn, other: MadeOn) -> Iterator[str]:
    """Changes to a node: its GPUs may have moved to another host."""
    named = {"machine": (known.machine, other.machine), "processors": (known.processors, other.processors)}
    for what, (ours, theirs) in named.items():
        if ours and theirs and ours != theirs:
            yield f"{what}: {ours} and {theirs}"
    least, most = sorted((known.memory, other.memory))
    if least and most - least > _SAME_MEMORY * most:
        yield f"memory: {format_bytes(known.memory)} and {format_bytes(other.memory)}"
    for index in sorted(known.devices.keys() & other.devices.keys()):
        if known.devices[index] != other.devices[index]:
            yield f"device {index} was {known.devices[index]} and {other.devices[index]}"


def _same_node(known: MadeOn, other: MadeOn) -> bool:
    """Whether both are one node, as far as both have values to compare."""
    if known.boards and other.boards:
        return not known.boards.isdisjoint(other.boards)
    named = bool(known.hosts and other.hosts)
    return not (named and known.hosts.isdisjoint(other.hosts) and known.boots.isdisjoint(other.boots))


def _indices(worked: frozenset[int]) -> str:
    """The devices in words, with their count."""
    shown = ", ".join(map(str, sorted(worked)))
    return f"device {shown}" if len(worked) == 1 else f"{len(worked)} devices ({shown})"


def _node(made: MadeOn) -> str:
    """The node's name, and its GPUs or processors."""
    what = names_of(sorted(made.boards), _NAMED) or made.processors
    return f"{_listed(made.hosts) or 'one without a name'}{f' ({what})' if what else ''}"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))

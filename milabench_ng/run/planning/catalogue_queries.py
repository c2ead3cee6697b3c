"""Queries to the worker server without a run: list the catalogue, resolve a profile, prepare its data."""

from __future__ import annotations

from milabench_ng.model.catalogue import Catalogue
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.execution.interruption import interruptions
from milabench_ng.run.execution.preparing import Needed, prepare_all, read_by
from milabench_ng.run.execution.serving import serving
from milabench_ng.run.planning.request import (
    ResolvedRequest,
    RunRequest,
    named_workloads,
    resolve_request,
)
from milabench_ng.worker.requests import ReadyDataset


async def ask_catalogue(bus: Bus) -> Catalogue:
    """All workloads and datasets of this installation. Of the broken ones ``bus`` is told."""
    async with serving(bus.stage) as server:
        catalogue = await server.describe(None)
    for reason in dict.fromkeys((*catalogue.broken.values(), *catalogue.broken_sets.values())):
        bus.note(f"left out: {reason}")
    return catalogue


async def ask_profile(request: RunRequest, bus: Bus) -> ResolvedRequest:
    """The tests of a request's profile, and the catalogue with the workloads that it names by path.

    Raises InputError if the profile is invalid.
    """
    async with serving(bus.stage) as server:
        return _resolved(request, await server.describe(named_workloads(request)), bus)


async def have_ready(request: RunRequest, bus: Bus) -> tuple[ReadyDataset, ...]:
    """Prepare every dataset that the request's selected tests read; return where they are.

    Raises InputError for an invalid profile and for a full or read-only disk, `Interrupted` at a signal.
    """
    async with interruptions(bus.note) as interrupted:
        return await interrupted.unless(_prepare(request, bus))


async def _prepare(request: RunRequest, bus: Bus) -> tuple[ReadyDataset, ...]:
    async with serving(bus.stage) as server:
        resolved = _resolved(request, await server.describe(named_workloads(request)), bus)
        wanted = read_by_tests(resolved)
        ready = await prepare_all(wanted, server, request.dataroot, bus.preparing)
    return tuple(ready[one].place for one in wanted)


def read_by_tests(resolved: ResolvedRequest) -> tuple[Needed, ...]:
    """What the selected tests read on any node: also those that only some nodes can run, or have to. Pure."""
    tests = ((test, resolved.arguments[name].arguments) for name, test in resolved.tests.items())
    return read_by(((test.workload, arguments, test.data_scale) for test, arguments in tests), resolved.catalogue)


def _resolved(request: RunRequest, catalogue: Catalogue, bus: Bus) -> ResolvedRequest:
    resolved = resolve_request(request, catalogue)
    for text in resolved.profile.warnings:
        bus.note(text)
    return resolved

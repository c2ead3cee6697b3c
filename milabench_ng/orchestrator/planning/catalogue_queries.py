"""What the worker server is asked without a run: what there is, what a profile means, and to have its data ready."""

from __future__ import annotations

import msgspec

from milabench_ng.catalogue import Catalogue
from milabench_ng.orchestrator.display.reporter import Reporter
from milabench_ng.orchestrator.execution.preparing import needed, prepare_all
from milabench_ng.orchestrator.execution.serving import serving
from milabench_ng.orchestrator.planning.request import (
    RunRequest,
    checked_plan,
    chosen_data,
    foreign_workloads,
    read_profile,
    typed_profile,
)
from milabench_ng.plan import Device
from milabench_ng.profile import Profile
from milabench_ng.requests import Place


class Known(msgspec.Struct, frozen=True):
    """A profile that was checked against the catalogue."""

    profile: Profile
    catalogue: Catalogue


async def ask_catalogue(reporter: Reporter) -> Catalogue:
    """All workloads and data sets of this installation."""
    async with serving(reporter.stage) as server:
        return await server.describe()


async def ask_profile(request: RunRequest, reporter: Reporter) -> Known:
    """The tests of a request's profile, and the catalogue with the workloads that it names by path.

    Raises InputError for what is wrong with it.
    """
    foreign = foreign_workloads(read_profile(request)[0])
    async with serving(reporter.stage) as server:
        known = _checked(request, await server.describe(foreign))
    for text in known.profile.warnings:
        reporter.note(text)
    return known


async def have_ready(request: RunRequest, reporter: Reporter) -> tuple[Place, ...]:
    """Have every data set that the selected tests of a request read on disk; where they lie.

    Raises InputError for what is wrong with the profile, and for a disk that is full or read-only.
    """
    foreign = foreign_workloads(read_profile(request)[0])
    async with serving(reporter.stage) as server:
        known = _checked(request, await server.describe(foreign))
        for text in known.profile.warnings:
            reporter.note(text)
        # What is read does not depend on the devices, so one stands for all.
        plan = checked_plan(known.profile, request, known.catalogue, (Device(index=0, kind="cpu"),))
        wanted = needed(plan, known.catalogue)
        ready = await prepare_all(wanted, server, request.dataroot, reporter.preparing)
    return tuple(ready[one].place for one in wanted)


def _checked(request: RunRequest, catalogue: Catalogue) -> Known:
    """Every test's workload and options are known, or an InputError says which is not."""
    catalogue = chosen_data(request, catalogue)
    profile = typed_profile(request, catalogue)
    checked_plan(profile, request, catalogue, (Device(index=0, kind="cpu"),))
    return Known(profile, catalogue)

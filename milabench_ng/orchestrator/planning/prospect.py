"""A run that has been planned and not yet begun: all that can be said before anything is started, and what its folder
promises of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Literal

import msgspec

from milabench_ng import __version__
from milabench_ng.catalogue import Catalogue
from milabench_ng.fence.backends import slurm
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import Wish, bounds, choose
from milabench_ng.fence.interface import Fence
from milabench_ng.fence.probing.probe import probe
from milabench_ng.fence.sharing.shares import Allocation, Placement, Policy, allocate
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.inventory import read_inventory
from milabench_ng.node.storage import read_storage
from milabench_ng.node.topology import read_topology
from milabench_ng.orchestrator.execution.starting import WorkerServer
from milabench_ng.orchestrator.planning.devices import choose_devices
from milabench_ng.orchestrator.planning.request import (
    RunRequest,
    checked_plan,
    chosen_data,
    encode_request,
    foreign_workloads,
    io_shares,
    read_profile,
    refuse_missing_packages,
    refuse_several_steps,
    required_isolation,
    typed_profile,
)
from milabench_ng.plan import Plan
from milabench_ng.profile import Profile
from milabench_ng.records.isolation import IoEvidence, Share
from milabench_ng.records.manifest import FenceSummary, Manifest, ProfileText, software_key
from milabench_ng.units import utc_iso, utc_now


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has been planned and not yet begun."""

    profile: Profile
    plan: Plan
    catalogue: Catalogue
    allocation: Allocation
    isolation: Wish
    capabilities: Capabilities
    """What the fence can do here, probed once a run."""
    start: Literal["warm", "cold"]
    """As it was asked for, or cold where no warm worker can enter the fence."""
    io: Mapping[str, IoEvidence]
    """The I/O shares that were asked for, by test (`suite.test`)."""
    device_notes: tuple[str, ...]
    """On the choice of the devices."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of it."""
        readers = {test: io.reason for test, io in self.io.items() if io.reason}
        said = (f"{test}: its readers hold the I/O share, not the kernel: {why}" for test, why in readers.items())
        return (*self.profile.warnings, *self.device_notes, *self.allocation.notes, *said)


async def plan_run(request: RunRequest, server: WorkerServer, gpus: tuple[Gpu, ...]) -> Prospect:
    """Everything that can be said before anything is started. Raises InputError and IsolationError."""
    raw, _ = read_profile(request)
    catalogue = chosen_data(request, await server.describe(foreign_workloads(raw)))
    profile = typed_profile(request, catalogue)
    topology = read_topology()
    chosen = choose_devices(gpus, request, len(topology.online), os.environ)
    plan = checked_plan(profile, request, catalogue, chosen.devices)
    refuse_missing_packages(profile, request, catalogue)
    wish = required_isolation(profile, request)
    capabilities = probe(request.cgroup_parent)
    backend = choose(capabilities, wish)
    if backend.NAME == slurm.NAME:
        refuse_several_steps(plan)
    io = io_shares(profile, request, capabilities, backend.NAME)
    allocation = allocate(
        topology,
        [Placement(str(device.index), device.numa_node) for device in chosen.devices],
        bounds(capabilities, wish),
        Policy(ram_total_bytes=request.ram_total_bytes),
    )
    return Prospect(
        profile=profile,
        plan=plan,
        catalogue=catalogue,
        allocation=allocation,
        isolation=wish,
        capabilities=capabilities,
        start=request.start if backend.WARM_WORKERS else "cold",
        io=io,
        device_notes=chosen.notes,
    )


def shares_by_device(allocation: Allocation) -> Mapping[int, Share]:
    """The shares by device index."""
    return {int(name): share for name, share in allocation.shares.items()}


def make_manifest(
    request: RunRequest, prospect: Prospect, run_id: str, fence: Fence, command_line: tuple[str, ...]
) -> Manifest:
    """What the result folder promises."""
    inventory = read_inventory()
    return Manifest(
        run_id=run_id,
        version=__version__,
        started_utc=utc_iso(utc_now()),
        command_line=command_line,
        profile=ProfileText(file=request.profile_source, sha256=prospect.profile.sha256, text=prospect.profile.text),
        plan=prospect.plan,
        window_rule=request.rule,
        start=prospect.start,
        dataroot=str(request.dataroot),
        inventory=inventory,
        storage={"dataroot": read_storage(request.dataroot), "outdir": read_storage(request.outdir)},
        fence=FenceSummary(
            requested=prospect.isolation,
            backend=fence.backend,
            tier=fence.tier,
            notes=fence.notes,
            ram_total_bytes=request.ram_total_bytes,
        ),
        shares=dict(prospect.allocation.shares),
        request=encode_request(request),
        software=inventory.versions,
        software_key=software_key(inventory),
        import_path=tuple(sys.path),
    )

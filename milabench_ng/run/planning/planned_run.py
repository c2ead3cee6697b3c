"""A run that is planned but has not begun: all that is known before anything starts, and its manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng import __version__
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import IsolationRequest, bounds, choose, require_cache_groups, require_groups
from milabench_ng.fence.claims import resources
from milabench_ng.fence.interface import Fence
from milabench_ng.fence.io import limits as io_limits
from milabench_ng.fence.probing.probe import probe
from milabench_ng.fence.sharing.cache_parts import cache_notes, with_cache_parts
from milabench_ng.fence.sharing.layout import Layout, lay_out, placements
from milabench_ng.fence.sharing.shares import Allocation, Policy, allocate
from milabench_ng.model.builtin import Declared, declared, read_builtin
from milabench_ng.model.catalogue import Catalogue, Workload
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.plan import Device, Launch, Plan, SlotId, slots_of, tenant_memory, unplanned_told
from milabench_ng.model.profile import Profile, Test
from milabench_ng.model.units import counted, format_bytes, format_seconds, utc_iso, utc_now
from milabench_ng.node.cgroup_files import format_ids
from milabench_ng.node.gpus import Gpu, smallest_memory
from milabench_ng.node.inventory import read_inventory
from milabench_ng.node.kernel_files import kernel_table
from milabench_ng.node.resctrl import Resctrl, read_resctrl
from milabench_ng.node.storage import read_storage
from milabench_ng.node.topology import read_topology
from milabench_ng.records.isolation import IoEvidence, Share
from milabench_ng.records.manifest import FenceSummary, Manifest, ProfileText, software_key
from milabench_ng.records.stopping import Stopping
from milabench_ng.records.window import WindowRule
from milabench_ng.records.work import DataRead, Work
from milabench_ng.run.execution.watchdog import Limits
from milabench_ng.run.execution.worker_server import WorkerServer
from milabench_ng.run.planning.devices import Chosen, choose_devices
from milabench_ng.run.planning.duration import least_duration
from milabench_ng.run.planning.refusals import (
    options_asked,
    refuse_full_disk,
    refuse_missing_packages,
    refuse_no_data_root,
    refuse_several_steps,
    refuse_unsearchable,
)
from milabench_ng.run.planning.request import (
    ResolvedRequest,
    RunRequest,
    encode_request,
    io_shares,
    named_workloads,
    plan_for,
    required_isolation,
    resolve_request,
    time_limits,
)
from milabench_ng.worker.requests import import_path


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A planned run: made once from the request, and passed to everything that follows."""

    resolved: ResolvedRequest
    plan: Plan
    layout: Layout
    leftover_cpus: tuple[int, ...]
    """CPUs in no share."""
    isolation: IsolationRequest
    capabilities: Capabilities
    """What the fence can do here, probed once per run."""
    start: Literal["warm", "cold"]
    """As requested, or cold if no warm worker can enter the fence."""
    io: Mapping[str, IoEvidence]
    """Requested I/O shares, by test (`suite.test`)."""
    resctrl: Resctrl | None
    """What the last-level caches are divided from; None where they are not."""
    limits: Mapping[str, Limits]
    """Watchdog limits, by test."""
    sharing_notes: tuple[str, ...]
    """Notes on the choice of devices and their shares."""

    @property
    def request(self) -> RunRequest:
        return self.resolved.request

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue as the request wants it read."""
        return self.resolved.catalogue

    @property
    def profile(self) -> Profile:
        return self.resolved.profile

    @property
    def rule(self) -> WindowRule:
        """The averaging window of launches."""
        return self.request.rule

    @property
    def devices(self) -> Mapping[str, Device]:
        """By slot."""
        return {slot.id: slot.device for slot in self.layout}

    @property
    def shares(self) -> Mapping[str, Share]:
        """By slot; `share` adds what differs between tests."""
        return {slot.id: slot.share for slot in self.layout}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about it."""
        readers = {test: io.reason for test, io in self.io.items() if io.reason}
        said = (f"{test}: its readers enforce the I/O limit, not the kernel: {why}" for test, why in readers.items())
        rule = self.request.stopping
        ends = () if rule is None else (f"up to {self.plan.repeat} repeats: {rule.text}", *self._too_little(rule))
        alone = without_alone(self.profile, self.resolved.tests)
        return (
            *self.profile.warnings,
            *self.sharing_notes,
            *unplanned_told(self.plan.not_planned),
            *alone,
            *said,
            *ends,
        )

    def _too_little(self, rule: Stopping) -> Iterator[str]:
        """What to say of a budget that is spent before the interval decides."""
        needs_s = least_duration(self.plan, self.rule, self.start).total_s * rule.least / self.plan.repeat
        if rule.width is not None and rule.budget_s is not None and needs_s > rule.budget_s:
            yield (
                f"the budget ends before --target-ci can stop the run: {counted(rule.least, 'repeat')} take at "
                f"least {format_seconds(needs_s)}"
            )

    def share(self, test: str, slot: str) -> Share:
        return msgspec.structs.replace(self.shares[slot], io=io_limits(self.io.get(test)))

    def workload(self, launch: Launch) -> Workload:
        return self.catalogue.workloads[launch.workload]


def fenceable(request: RunRequest) -> Capabilities:
    """What can be fenced here. Raises IsolationError if that is less than the request asks for."""
    capabilities = probe(request.cgroup_parent)
    choose(capabilities, request.isolation)
    return capabilities


class TenantPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tenants of a run will be: all of a plan that needs no torch."""

    chosen: Chosen
    slots: Mapping[SlotId, Device]
    memory: DeviceMemory | None
    """Of the smallest device; None for CPU partitions."""
    isolation: IsolationRequest
    allocation: Allocation

    @property
    def resources(self) -> tuple[str, ...]:
        """What the run will claim."""
        cpus = (cpu for share in self.allocation.shares.values() for cpu in share.cpus)
        return resources(cpus, (device.uuid for device in self.chosen.devices))


def find_places(
    request: RunRequest, tests: Mapping[str, Test], gpus: tuple[Gpu, ...], capabilities: Capabilities
) -> TenantPlaces:
    """Choose devices and divide the node for the selected ``tests``. Raises InputError and IsolationError."""
    topology = read_topology()
    chosen = choose_devices(gpus, request, len(topology.online), os.environ)
    slots = slots_of(chosen.devices, request.slots_per_device)
    refuse_full_disk(request, len(slots))
    refuse_no_data_root(request, tests)
    wish = required_isolation(request, tests)
    if request.cgroup_parent is not None:
        require_groups(capabilities, wish, request.cgroup_parent)
    allocation = allocate(
        topology,
        placements(slots),
        bounds(capabilities, wish),
        Policy(ram_total_bytes=request.ram_total_bytes, reserved_cores=request.reserved_cores),
    )
    memory = smallest_memory(chosen.devices, gpus, request.slots_per_device)
    return TenantPlaces(chosen=chosen, slots=slots, memory=memory, isolation=wish, allocation=allocation)


async def plan_run(
    request: RunRequest, places: TenantPlaces, server: WorkerServer, capabilities: Capabilities
) -> PlannedRun:
    """Plan the rest of what can be planned before anything starts. Raises InputError and IsolationError."""
    chosen, memory, wish, allocation = places.chosen, places.memory, places.isolation, places.allocation
    resolved = resolve_request(request, await server.describe(named_workloads(request)), memory)
    refuse_missing_packages(resolved)
    backend = choose(capabilities, wish)
    rams = [share.memory_bytes for share in allocation.shares.values()]
    plan = plan_for(resolved, chosen.devices, tenant_memory(memory, rams))
    await server.check(options_asked(resolved, plan))
    if backend.GROUPS_BY == "scheduler":
        refuse_several_steps(plan)
    refuse_unsearchable(resolved, memory, backend.tier(capabilities) or "none")
    io = io_shares(resolved, capabilities, backend)
    offer = read_resctrl() if request.cache_shares else None
    shares = allocation.shares if offer is None else with_cache_parts(allocation.shares, offer)
    if offer is not None:
        require_cache_groups(capabilities, wish)
    start = request.start if backend.WARM_WORKERS else "cold"
    return PlannedRun(
        resolved=resolved,
        plan=plan,
        layout=lay_out(places.slots, shares),
        leftover_cpus=allocation.leftover_cpus,
        isolation=wish,
        capabilities=capabilities,
        start=start,
        io=io,
        resctrl=offer,
        limits=time_limits(resolved, plan, start),
        sharing_notes=(
            *chosen.notes,
            *shared_devices(plan),
            *allocation.notes,
            *beyond_own(os.sched_getaffinity(0), allocation.shares),
            *cache_notes(offer),
            *huge_pages(kernel_table(Path("/proc/meminfo"))),
        ),
    )


def without_alone(profile: Profile, chosen: Mapping[str, Test]) -> Iterator[str]:
    """What to say of chosen tests that run beside others and get no slowdown, as none runs their work alone."""
    alone = {name: test for name, test in profile.tests.items() if test.neighbors == "none"}
    lacking: dict[str, list[str]] = {}
    for name, test in chosen.items():
        same = [other for other, victim in alone.items() if _work(victim) == _work(test)]
        if isinstance(test.neighbors, tuple) and not chosen.keys() & set(same):
            lacking.setdefault(f". Add --name {same[0]}" if same else "", []).append(name)
    for what_to_do, names in lacking.items():
        yield f"no slowdown will be computed for {', '.join(names)}: no test does the same work alone{what_to_do}"


def _work(test: Test) -> Work:
    """What a profile says of the work of a test, with tables by memory class as they stand."""
    return Work(
        workload=test.workload,
        scheme=test.partition_scheme.type,
        options={name: str(value) for name, value in test.arguments.items()},
        precision=(str(test.arguments.get("precision")),),
        data=(DataRead(name="", kind="", scale=test.data_scale, cache=""),),
    )


def shared_devices(plan: Plan) -> tuple[str, ...]:
    """The note that several tenants share each device. Pure."""
    count = plan.tenants_per_device
    if count == 1:
        return ()
    if all(device.kind == "cpu" for device in plan.devices):
        return (f"{count} tenants share each CPU partition, in equal parts",)
    return (
        (
            f"{count} tenants share each GPU, so torch may use 1/{count} of its memory in each. Results get a "
            "comparability warning"
        ),
    )


def beyond_own(own: Set[int], shares: Mapping[str, Share]) -> tuple[str, ...]:
    """The note that tenants get CPUs that this process may not use itself. Pure."""
    others = {cpu for share in shares.values() for cpu in share.cpus} - own
    if not others:
        return ()
    started = f"mnb was started on {_cpus(own)} (taskset, or a batch system)"
    return (f"{started}, but the tenants also get {_cpus(others)} of its cgroup",)


def _cpus(ids: Set[int]) -> str:
    """``CPU 1`` or ``CPUs 0-3``."""
    return f"{'CPU' if len(ids) == 1 else 'CPUs'} {format_ids(ids)}"


def huge_pages(memory: Mapping[str, int]) -> tuple[str, ...]:
    """The note that no memory limit counts the huge pages that the node has set aside. Pure."""
    count = memory.get("HugePages_Total", 0)
    size = format_bytes(count * memory.get("Hugepagesize", 0))
    note = f"{count} huge pages ({size}) are reserved on this node. Tenants can use them beyond their RAM allocation"
    return (note,) if count else ()


def foreign_workloads(planned: PlannedRun) -> dict[str, Declared]:
    """What the planned workloads of other packages declare."""
    names = {launch.workload for launch in planned.plan.launches} - read_builtin().keys()
    return {name: declared(planned.catalogue.workloads[name]) for name in sorted(names)}


def make_manifest(planned: PlannedRun, run_id: str, fence: Fence, command_line: tuple[str, ...]) -> Manifest:
    """The manifest of the result folder."""
    request = planned.request
    inventory = read_inventory()
    return Manifest(
        run_id=run_id,
        version=__version__,
        started_utc=utc_iso(utc_now()),
        command_line=command_line,
        profile=ProfileText(file=request.profile.source, sha256=planned.profile.sha256, text=planned.profile.text),
        plan=planned.plan,
        window_rule=planned.rule,
        stopping=request.stopping,
        start=planned.start,
        dataroot=str(request.dataroot),
        inventory=inventory,
        storage={"dataroot": read_storage(request.dataroot), "outdir": read_storage(request.outdir)},
        fence=FenceSummary(
            requested=planned.isolation,
            backend=fence.backend,
            tier=fence.tier,
            notes=fence.notes,
            ram_total_bytes=request.ram_total_bytes,
            resctrl=planned.resctrl or msgspec.UNSET,
        ),
        shares=dict(planned.shares),
        request=encode_request(request),
        declared=foreign_workloads(planned),
        software=inventory.versions,
        software_key=software_key(inventory),
        import_path=tuple(import_path()),
    )

"""Checks whether this node is ready for a run, and why not, for ``mnb doctor``."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng.fence.cache_groups import find_cache_groups
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import best_reasons, bounds, choose, confinement
from milabench_ng.fence.probing.probe import probe
from milabench_ng.fence.runs import TOP, locked_top
from milabench_ng.fence.sharing.cache_parts import with_cache_parts
from milabench_ng.fence.sharing.layout import placements
from milabench_ng.fence.sharing.shares import Allocation, Policy, allocate
from milabench_ng.model.errors import InputError, IsolationError
from milabench_ng.model.files import is_locked, nearest
from milabench_ng.model.plan import Device, slots_of
from milabench_ng.node.conditions import Conditions, read_conditions
from milabench_ng.node.drivers.opening import BACKENDS, built_for, open_drivers
from milabench_ng.node.foreign_load import busy_note
from milabench_ng.node.inventory import Inventory, read_inventory
from milabench_ng.node.kernel_mounts import OF_THE_KERNEL
from milabench_ng.node.resctrl import Resctrl, read_resctrl
from milabench_ng.node.storage import Storage, read_storage
from milabench_ng.node.topology import Topology, read_topology
from milabench_ng.node.wall_clock import WallClock, read_wall_clock
from milabench_ng.records.isolation import CachePart, Confinement, Tier
from milabench_ng.run.execution.scratch import PREFIX, scratch_parent, scratch_parents
from milabench_ng.run.execution.serving import low_limits, poor_scheduling
from milabench_ng.run.planning.devices import choose_devices
from milabench_ng.run.planning.planned_run import beyond_own
from milabench_ng.run.planning.request import RunRequest

CHECKUP_SCHEMA = 1
_NEEDED = ("torch", "torchvision", "numpy", "pillow", "cgroupspy", "nvidia-ml-py", "psutil", "threadpoolctl")


class Remains(msgspec.Struct, frozen=True):
    """Something on the node that belongs to a live run or was left by a dead one."""

    kind: Literal["groups", "scratch", "data"]
    path: str
    alive: bool | None
    """None if this user may not find out."""


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """What the node is, what can be fenced, and what prevents a run with the given options."""

    schema: int = CHECKUP_SCHEMA
    ready: bool
    reasons: tuple[str, ...]
    """Why the node is not ready, each reason with its remedy."""
    notes: tuple[str, ...]
    """What the user should know although it prevents nothing."""
    inventory: Inventory
    capabilities: Capabilities
    backend: str
    tier: Tier
    confinement: Confinement | None
    """What tenants give up to stay inside; None if that could not be tried."""
    devices: tuple[Device, ...]
    """Devices that the tenants of a run would use."""
    allocation: Allocation | None
    """Shares that they would get; None if the node cannot be divided this way."""
    resctrl: Resctrl
    """What the kernel could divide and count of caches and memory bandwidth, which the fence leaves shared."""
    cache_shares: dict[str, tuple[CachePart, ...]]
    """The parts of caches that ``--cache-shares`` would give each slot; empty where it cannot."""
    cache_problem: str | None
    """Why it cannot."""
    dataroot: Storage
    remains: tuple[Remains, ...]
    conditions: Conditions
    """Settings and state of host and GPUs."""
    wall_clock: WallClock | None
    """None if the kernel may not be asked."""


def examine(request: RunRequest) -> Checkup:
    """Examine the node as a run of ``request`` would; its profile is not read.

    Raises InputError for missing devices.
    """
    with open_drivers() as drivers:
        inventory = read_inventory(drivers)
        conditions = read_conditions(drivers, inventory.gpus)
    topology = read_topology()
    capabilities = probe(request.cgroup_parent)
    tier = choose(capabilities, "auto").tier(capabilities) or "none"
    chosen = choose_devices(inventory.gpus, request, len(topology.online), os.environ)
    allocation, problem = _divide(topology, chosen.devices, capabilities, request)
    resctrl, dataroot = read_resctrl(), read_storage(request.dataroot)
    cache_shares, cache_problem = _divide_caches(allocation, resctrl)
    reasons = (
        *(_isolation_reasons(capabilities, tier) if tier != "full" else ()),
        *((problem,) if problem else ()),
        *_process_reasons(),
        *_software_reasons(inventory.versions),
        *gpu_reasons(inventory),
        *data_reasons(dataroot),
    )
    return Checkup(
        ready=not reasons,
        reasons=reasons,
        notes=(*chosen.notes, *busy_note(request.rule.length_s), *_notes(inventory, capabilities, allocation, tier)),
        inventory=inventory,
        capabilities=capabilities,
        backend=choose(capabilities, "auto").NAME,
        tier=tier,
        confinement=confinement(),
        devices=chosen.devices,
        allocation=allocation,
        resctrl=resctrl,
        cache_shares=cache_shares,
        cache_problem=cache_problem,
        dataroot=dataroot,
        remains=find_remains(capabilities.parents, request.dataroot),
        conditions=conditions,
        wall_clock=read_wall_clock(),
    )


def gpu_reasons(inventory: Inventory) -> Iterator[str]:
    """GPUs on the PCI bus that cannot be used, and a torch that cannot use the others. Pure."""
    shown, torch = {gpu.pci_bus_id for gpu in inventory.gpus}, inventory.versions.get("torch")
    vendor = built_for(torch)
    makers = {vendor, *(gpu.maker for gpu in inventory.gpus)} - {None} or {*BACKENDS}
    usable = [backend for backend in BACKENDS.values() if backend.vendor in makers]
    unshown = [gpu for gpu in inventory.pci_gpus if gpu.pci_bus_id not in shown]
    lost = [(gpu, backend) for gpu in unshown for backend in usable if gpu.vendor == backend.vendor]
    for gpu, backend in lost:
        yield (
            f"GPU {gpu.pci_bus_id} ({gpu.vendor} {gpu.device_id}, kernel driver {gpu.driver or 'none'}) is on "
            f"the PCI bus but cannot be used. {backend.remedy}"
        )
    if lost or inventory.driver:
        yield from inventory.gpu_notes
    # Next to working GPUs, a display of another vendor is not missing.
    others = [] if inventory.gpus else [gpu for gpu in unshown if gpu.vendor not in {one.vendor for one in usable}]
    for maker in dict.fromkeys(gpu.vendor for gpu in others):
        of_mnb = any(backend.vendor == maker for backend in BACKENDS.values())
        why = (
            f"torch {torch} is built for GPUs of {vendor}"
            if of_mnb
            else f"mnb supports {' and '.join(BACKENDS)} GPUs only"
        )
        count = sum(gpu.vendor == maker for gpu in others)
        yield f"{count} {maker} GPU(s) on the PCI bus: {why}, so its tenants would be CPU partitions"
    if any(gpu.maker == "NVIDIA" for gpu in inventory.gpus):
        yield from _torch_reasons(inventory)


def data_reasons(root: Storage) -> Iterator[str]:
    """A data root where no dataset lies and none can be written; sets that lie there can be read."""
    there = nearest(Path(root.path))
    made = str(there) == root.path and os.access(there, os.R_OK)
    usable = os.access(there, os.W_OK | os.X_OK) or (made and any(there.iterdir()))
    if root.filesystem in OF_THE_KERNEL or not usable:
        where = "" if str(there) == root.path else f" in {there}"
        yield f"data root {root.path}: not writable{where} ({root.filesystem}). Name a folder with --dataroot"


def _torch_reasons(inventory: Inventory) -> Iterator[str]:
    built, supported = inventory.versions.get("cuda"), inventory.cuda_driver
    if "torch" in inventory.versions and built is None:
        yield f"torch {inventory.versions['torch']} is built without CUDA. Install a build with CUDA"
    # Within one major version an older driver runs newer CUDA (minor version compatibility, CUDA 11 and later).
    if built and supported and int(built.split(".")[0]) > int(supported.split(".")[0]):
        yield (
            f"torch is built for CUDA {built} and driver {inventory.nvidia_driver} supports up to {supported}. "
            "Update the driver, or install a torch build for that CUDA version"
        )


def _divide(
    topology: Topology, devices: Sequence[Device], capabilities: Capabilities, request: RunRequest
) -> tuple[Allocation | None, str | None]:
    """The shares, or why there are none."""
    tenants = placements(slots_of(devices, request.slots_per_device))
    policy = Policy(ram_total_bytes=request.ram_total_bytes, reserved_cores=request.reserved_cores)
    try:
        return allocate(topology, tenants, bounds(capabilities, "auto"), policy), None
    except IsolationError as error:
        return None, str(error)


def _divide_caches(
    allocation: Allocation | None, resctrl: Resctrl
) -> tuple[dict[str, tuple[CachePart, ...]], str | None]:
    """The parts of caches by slot, or why there are none."""
    if allocation is None:
        return {}, None
    try:
        shares = with_cache_parts(allocation.shares, resctrl)
    except IsolationError as error:
        return {}, str(error)
    return {slot: share.cache or () for slot, share in shares.items()}, None


def _isolation_reasons(capabilities: Capabilities, tier: Tier) -> tuple[str, ...]:
    fallback = f"isolation: only {tier} is possible here, because the kernel does not enforce both CPUs and RAM"
    return best_reasons(capabilities) or (fallback,)


def _process_reasons() -> Iterator[str]:
    """What this process has inherited that no worker could work with."""
    yield from low_limits()
    try:
        scratch_parent()
    except InputError as error:
        yield str(error)


def _software_reasons(versions: Mapping[str, str]) -> Iterator[str]:
    missing = [name for name in _NEEDED if name not in versions]
    if missing:
        yield f"not installed for {sys.executable}: {', '.join(missing)}"


def _notes(
    inventory: Inventory, capabilities: Capabilities, allocation: Allocation | None, tier: Tier
) -> Iterator[str]:
    if tier == "full":
        yield from capabilities.messages
    if allocation is not None:
        yield from allocation.notes
        yield from beyond_own(os.sched_getaffinity(0), allocation.shares)
    yield from poor_scheduling()
    if not inventory.gpus:
        yield "no GPU: the tenants are CPU partitions"
    if inventory.swap_bytes:
        yield "the node has swap. Tenants cannot use it, other processes can"


def find_remains(parents: Sequence[str], dataroot: Path) -> tuple[Remains, ...]:
    """The groups below ``parents`` and in resctrl, the scratch folders, the half-made datasets below ``dataroot``.

    Live runs hold a ``flock(2)`` on their groups and scratch folders, and a generator holds one next to the dataset
    that it makes. The rest was left by dead runs. Removes nothing: the next run does.
    """
    groups = (*_groups(parents), *_cache_groups())
    scratch = (found for parent in (*scratch_parents(), dataroot) for found in _scratch(parent))
    return (*groups, *scratch, *_half_made(dataroot))


def _groups(parents: Sequence[str]) -> Iterator[Remains]:
    """List runs' groups, holding the parent's lock as a starting run does until its groups are locked."""
    runs = sorted(Path(parents[0], TOP).glob("*/")) if parents else []
    if not runs:
        return
    with locked_top(parents[0], fcntl.LOCK_SH):
        for run in runs:
            if run.is_dir():
                yield Remains("groups", str(run), _held(run))


def _cache_groups() -> Iterator[Remains]:
    for path, alive in find_cache_groups().items():
        yield Remains("groups", path, alive)


def _scratch(parent: Path) -> Iterator[Remains]:
    for folder in sorted(parent.glob(f"{PREFIX}*")):
        if folder.is_dir() and not folder.is_symlink():
            yield Remains("scratch", str(folder), _held(folder))


def _half_made(dataroot: Path) -> Iterator[Remains]:
    """List ``.mnb-<dataset>-<pid>``, next to the lock ``.mnb-<dataset>.lock`` of the current generator."""
    for folder in sorted([*dataroot.glob(".mnb-*-*/"), *dataroot.glob("scale-*/.mnb-*-*/")]):
        name = folder.name.removesuffix("-old").rpartition("-")[0]
        yield Remains("data", str(folder), _held(folder.with_name(f"{name}.lock")))


def _held(path: Path) -> bool | None:
    """Whether another process has an exclusive lock on ``path``; None if this user may not open it."""
    try:
        return is_locked(path)
    except PermissionError:
        return None

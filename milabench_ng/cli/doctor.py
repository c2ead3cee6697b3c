"""``mnb doctor``."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence

import msgspec

from milabench_ng.cli.named_files import RulesFile
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.options import CgroupParent, DataRoot, FormOption, GpusOption, RamTotal, Whole
from milabench_ng.cli.preflight import AFTER, planned, rulings_ahead
from milabench_ng.cli.shares import share_section
from milabench_ng.fence.choosing import enter_scope
from milabench_ng.fence.sharing.layout import lay_out
from milabench_ng.model.plan import slots_of
from milabench_ng.model.profile import Profile
from milabench_ng.model.units import GIB, counted, format_bytes
from milabench_ng.node.drivers.opening import BACKENDS
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.inventory import Inventory
from milabench_ng.present.render.cells import Fact, number
from milabench_ng.present.render.sections import Document, Facts, Heading, Part, Section, facts, in_one_table, table
from milabench_ng.present.render.verification_tables import ruling_section
from milabench_ng.present.writers import write
from milabench_ng.records.isolation import Confinement, cache_text
from milabench_ng.run.planning.readiness import Checkup, examine
from milabench_ng.verification.findings import Ruling
from milabench_ng.verification.rules_file import load_rules

Statements = Iterator[tuple[str, str]]


def doctor(
    *,
    tenants: Whole | None = None,
    slots_per_device: Whole = 1,
    gpus: GpusOption = "",
    ram_total: RamTotal = None,
    cgroup_parent: CgroupParent = None,
    dataroot: DataRoot = None,
    rules: RulesFile = None,
    form: FormOption = "table",
) -> int:
    """Check whether this node can run isolated benchmarks, and what is missing. Changes nothing.

    Exit code: 0 if ready (full isolation, torch installed, allocations possible, all GPUs usable) and no rule is
    broken, 1 if not (the last lines say why), 2 for bad input.

    Example: mnb doctor --rules standard

    Parameters
    ----------
    tenants
        Show the allocations for this many tenants: the first GPUs, or CPU partitions without GPUs (default 2).
    slots_per_device
        Show the allocations for this many tenants on each device.
    rules
        Also check which of these rules the node meets, with the profile that they name. A JSON file, or the name of a
        shipped rule set: standard, procurement.
    """
    asked = None if rules is None else load_rules(rules)
    node = NodeOptions(
        tenants=tenants,
        slots_per_device=slots_per_device,
        gpus=gpus,
        ram_total=ram_total,
        cgroup_parent=cgroup_parent,
        dataroot=dataroot,
    )
    enter_scope("auto", cgroup_parent)
    checkup = examine(node.request(Profile("", {}, "", "mnb doctor")))
    found = () if asked is None else rulings_ahead(asked, checkup, planned(asked, node))
    write(_document(checkup, slots_per_device, found), form, sys.stdout)
    return 0 if checkup.ready and not any(one.result == "fail" for one in found) else 1


def _document(checkup: Checkup, slots_per_device: int, rulings: tuple[Ruling, ...]) -> Document:
    parts = tuple(_parts(checkup, slots_per_device, rulings))
    told = {"rules": rulings} if rulings else {}
    return Document(
        title="mnb doctor", parts=parts, table=in_one_table(parts), whole=msgspec.structs.asdict(checkup) | told
    )


def _parts(checkup: Checkup, slots_per_device: int, rulings: Sequence[Ruling]) -> Iterator[Part]:
    inventory = checkup.inventory
    yield facts("node", _node(inventory))
    yield facts("GPUs", _gpu_facts(inventory))
    if inventory.gpus:
        yield gpu_section(inventory.gpus, {device.uuid for device in checkup.devices})
    yield facts("fence", _fence(checkup))
    yield _controllers(checkup)
    if checkup.allocation is None:
        yield Facts(title="shares", text="not possible, see below")
    else:
        yield share_section(lay_out(slots_of(checkup.devices, slots_per_device), checkup.allocation.shares))
    yield facts("folders", _folders(checkup))
    yield facts("software", inventory.versions.items())
    if rulings:
        yield ruling_section("rules", rulings, (AFTER,))
    yield Facts(facts=tuple(_verdict(checkup, rulings)))


def _verdict(checkup: Checkup, rulings: Sequence[Ruling]) -> Iterator[Fact]:
    broken = [one.id for one in rulings if one.result == "fail"]
    yield from (Fact("note", note) for note in checkup.notes)
    yield from (Fact("not ready", reason, "bad") for reason in checkup.reasons)
    if broken:
        yield Fact("not ready", f"a run here would violate {', '.join(broken)} of the rules", "bad")
    elif checkup.ready:
        yield Fact("ready", _what_is_there(checkup), "good")


def _what_is_there(checkup: Checkup) -> str:
    if checkup.devices[0].kind == "cpu":
        return "full isolation, allocations and software are available, but for CPUs only: tenants get no GPU"
    return "full isolation, allocations, GPUs and software are available"


def _node(inventory: Inventory) -> Statements:
    around = " in ".join(part for part in (inventory.container, inventory.virtualization) if part)
    cpus = inventory.cpus
    yield "host", inventory.hostname
    yield "machine", f"{inventory.machine or 'unknown'}{f' ({around})' if around else ''}"
    yield "system", f"{inventory.os}, Linux {inventory.kernel}, {inventory.architecture}"
    yield "CPU", cpus.model
    yield "", f"sockets {cpus.sockets}, cores {cpus.cores}, threads {cpus.threads}, NUMA nodes {cpus.numa_nodes}"
    yield "RAM", format_bytes(inventory.memory_bytes)
    yield "swap", format_bytes(inventory.swap_bytes) if inventory.swap_bytes else "none"


def _gpu_facts(inventory: Inventory) -> Statements:
    yield "PCI bus", _on_pci(inventory)
    for backend in BACKENDS.values():
        shown = sum(gpu.maker == backend.vendor for gpu in inventory.gpus)
        yield backend.library, f"{counted(shown, 'device')}{backend.caveat}" if shown else "no device"
    yield from (("not usable", note) for note in inventory.gpu_notes)
    if any(gpu.maker == "NVIDIA" for gpu in inventory.gpus):
        yield "MPS", inventory.mps or "no daemon, so tenants of one GPU take turns"
    if inventory.nvidia_driver:
        yield "driver", f"{inventory.nvidia_driver} (CUDA up to {inventory.cuda_driver or 'unknown'})"
    if inventory.amd_driver:
        yield "driver", f"{inventory.amd_driver} (amdgpu)"


def _on_pci(inventory: Inventory) -> str:
    shown = (
        f"{gpu.pci_bus_id} {gpu.vendor} {gpu.device_id} (kernel driver {gpu.driver or 'none'})"
        for gpu in inventory.pci_gpus
    )
    return "; ".join(shown) or "no GPU"


def gpu_section(gpus: Sequence[Gpu], used: Collection[str | None]) -> Section:
    """A line for each GPU, or MIG instance, and whether its UUID is among those ``used``."""
    cut = any(gpu.mig for gpu in gpus)
    rows = (
        (
            gpu.index,
            gpu.name,
            gpu.uuid,
            gpu.pci_bus_id,
            gpu.numa_node,
            gpu.memory_bytes and gpu.memory_bytes / GIB,
            *(_instance(gpu) if cut else ()),
            "yes" if gpu.uuid in used else "no",
        )
        for gpu in gpus
    )
    device, memory = Heading("device", number=True), Heading("memory", "GiB", number, True)
    of_instance = ("MIG profile", "compute", "of GPU") if cut else ()
    return table("", rows, device, "name", "UUID", "PCI", "NUMA node", memory, *of_instance, "chosen")


def _instance(gpu: Gpu) -> tuple[str | None, ...]:
    """The profile of a MIG instance, its part of the compute slices, and the GPU that it is cut from."""
    compute = f"{gpu.slices[0]}/{gpu.slices[1]}" if gpu.slices else "unknown"
    return (gpu.profile or "unknown", compute, gpu.parent) if gpu.mig else (None, "all", None)


def _fence(checkup: Checkup) -> Statements:
    capabilities = checkup.capabilities
    yield "isolation", f"{checkup.tier} (through {checkup.backend})"
    yield "cgroups", f"{capabilities.mode}{', as root' if capabilities.root else ', not as root'}"
    yield "groups below", ", ".join(capabilities.parents) or "not possible"
    if checkup.confinement is not None:
        yield from _confinement(checkup.confinement, permitted=bool(capabilities.parents))
    yield "not isolated", "caches and memory bandwidth"
    yield "resctrl", checkup.resctrl.text
    for place, (slot, parts) in enumerate(checkup.cache_shares.items()):
        yield "" if place else "--cache-shares", f"device {slot}: {cache_text(parts)}"
    if checkup.cache_problem and checkup.resctrl.problem is None:
        yield "--cache-shares", checkup.cache_problem


def _confinement(held: Confinement, *, permitted: bool) -> Statements:
    """What tenants cannot do here to leave their share; ``permitted``: this user may write to groups."""
    means = {
        "write to cgroups": held.groups_read_only or not permitted,
        "see groups above their own": held.cgroup_namespace,
        "leave System V memory behind": held.ipc_namespace,
        "gain privileges by exec": held.no_new_privs,
    }
    yield (
        "tenants cannot",
        ", ".join(name for name, given_up in means.items() if given_up) or "be prevented from leaving",
    )
    able = [name for name, given_up in means.items() if not given_up]
    if able:
        yield "tenants could", f"{', '.join(able)} (detected at the stop; preventing it needs root)"
    yield "they keep", ", ".join(f"CAP_{name}" for name in held.capabilities) or "no capability"


def _controllers(checkup: Checkup) -> Section:
    rows = (
        (name, "yes" if one.ok else "no", one.via or None, one.parent or None, one.why or None, one.fix or None)
        for name, one in checkup.capabilities.controllers.items()
    )
    return table("", rows, "controller", "can be held", "through", "below", "why not", "what to do")


def _folders(checkup: Checkup) -> Statements:
    root = checkup.dataroot
    disk = ", ".join(part for part in (root.filesystem, root.device or root.source) if part)
    yield "data root", f"{root.path} on {root.mount_point} ({disk}, {root.kind})"
    yield "free space", f"{format_bytes(root.free_bytes)} of {format_bytes(root.total_bytes)}"
    states = {
        True: "belongs to a running mnb",
        False: "left by a dead run; the next run removes it",
        None: "of another user",
    }
    for remains in checkup.remains:
        yield remains.kind, f"{remains.path}: {states[remains.alive]}"
    if all(remains.alive for remains in checkup.remains):
        yield "leftovers", "none of dead runs"

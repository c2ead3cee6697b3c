"""The devices that NVML shows: GPUs, and the MIG instances that stand in place of theirs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from milabench_ng.node.drivers.interface import Found
from milabench_ng.node.drivers.nvml.session import GpuReader, Session
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.pci_gpus import numa_node


def find_devices(session: Session, sysfs: Path) -> Found:
    """All devices in NVML's order. A GPU in MIG mode without instances cannot be used, which is noted."""
    found: list[Gpu] = []
    notes: list[str] = []
    for reader in session.readers():
        devices, note = _read_devices(reader, sysfs)
        found += devices
        notes += [note] if note else []
    return Found(devices=tuple(found), notes=tuple(notes))


def _read_devices(reader: GpuReader, sysfs: Path) -> tuple[list[Gpu], str | None]:
    """The device or the MIG instances behind one GPU that NVML lists, or a note on why there is none."""
    uuid, pci = reader.ask("uuid", "UUID"), reader.ask("pci_bus_id", "PciInfo")
    if uuid is None or pci is None:
        return [], f"a GPU does not answer ({'; '.join(reader.errors.values()) or 'no UUID or PCI address'}): not used"
    bus_id = _sysfs_bus_id(pci.busId)
    board = _read_device(reader, uuid, bus_id, sysfs)
    modes = reader.ask("mig_mode", "MigMode")
    if not modes or not modes[0]:
        return [board], None
    slices = reader.ask("mig_instances", "MaxMigDeviceCount")
    instances = [
        _read_instance(instance, instance_uuid, board, slices, sysfs)
        for instance in reader.instances()
        if (instance_uuid := instance.ask("uuid", "UUID")) is not None
    ]
    return instances, None if instances else f"{uuid} ({bus_id}): MIG mode is on and has no instances: not used"


def _read_device(reader: GpuReader, uuid: str, bus_id: str, sysfs: Path) -> Gpu:
    memory = reader.ask("memory", "MemoryInfo")
    capability = reader.ask("capability", "CudaComputeCapability")
    return Gpu(
        index=-1,
        uuid=uuid,
        name=reader.ask("name", "Name") or "unknown",
        pci_bus_id=bus_id,
        numa_node=numa_node(sysfs, bus_id),
        memory_bytes=None if memory is None else memory.total,
        capability=None if capability is None else capability[0] + capability[1] / 10,
    )


def _read_instance(reader: GpuReader, uuid: str, board: Gpu, slices: int | None, sysfs: Path) -> Gpu:
    """A MIG instance of ``board``, which has so many compute slices: one for each instance that it can have at most.

    A driver that leaves the profile out of its name would have unequal instances look like one model.
    """
    device = _read_device(reader, uuid, board.pci_bus_id, sysfs)
    instance = msgspec.structs.replace(device, mig=True, parent=board.uuid)
    has = reader.ask("attributes", "Attributes")
    if has is None or not slices:
        return instance
    compute, own, gb = has.computeInstanceSliceCount, has.gpuInstanceSliceCount, -(-has.memorySizeMB // 1024)
    profile = f"{'' if compute == own else f'{compute}c.'}{own}g.{gb}gb"
    name = instance.name if instance.profile else f"{instance.name} MIG {profile}"
    return msgspec.structs.replace(instance, name=name, slices=(compute, slices))


def _sysfs_bus_id(bus_id: str) -> str:
    """The address in sysfs's format: NVML writes the domain with eight digits, sysfs with four."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, rest = text.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"

"""The devices that AMD SMI shows: GPUs, and the compute partitions that stand in place of theirs.

A device is named by the UUID that ``ROCR_VISIBLE_DEVICES`` takes (GPU isolation techniques, ROCm documentation). A GPU
in another mode than SPX is listed once for each partition, under PCI functions of their own (GPU partitioning, AMD SMI
documentation).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from milabench_ng.node.drivers.amd_smi.session import GpuReader
from milabench_ng.node.drivers.interface import Found
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.pci_gpus import numa_node

_WITHOUT = "XX"
"""How the UUID of a device ends that has none (hsa_ext_amd.h)."""
_WHOLE = "SPX"


def read_uuid(reader: GpuReader) -> str | None:
    """The UUID by which HIP knows a device; made of its serial number where an older package does not tell."""
    told = reader.ask("uuid", "gpu_enumeration_info")
    if told is not None and told.get("hip_uuid"):
        uuid: str = told["hip_uuid"]
        return None if uuid.endswith(_WITHOUT) else uuid
    serial = (reader.ask("asic", "gpu_asic_info") or {}).get("asic_serial", "")
    return f"GPU-{serial[2:].lower()}" if serial.startswith("0x") and int(serial, 16) else None


def find_devices(readers: Mapping[str, GpuReader], unnamed: Iterable[GpuReader], sysfs: Path) -> Found:
    """The devices of ``readers``, which are by UUID; those of ``unnamed`` cannot be used, which is noted."""
    boards: dict[str, list[tuple[str, GpuReader]]] = {}
    notes = [_unusable(reader) for reader in unnamed]
    for uuid, reader in readers.items():
        address = reader.ask("pci_bus_id", "gpu_device_bdf")
        if address is None:
            notes.append(_unusable(reader))
        else:
            boards.setdefault(f"{address.lower().partition('.')[0]}.0", []).append((uuid, reader))
    devices = [gpu for address, parts in boards.items() for gpu in _of_board(address, parts, sysfs)]
    return Found(devices=tuple(devices), notes=tuple(notes))


def _of_board(address: str, parts: list[tuple[str, GpuReader]], sysfs: Path) -> Iterable[Gpu]:
    """The GPU at a PCI address, or its partitions."""
    first = parts[0][0]
    for uuid, reader in parts:
        device = _read_device(uuid, reader, address, sysfs)
        mode = reader.ask("partition", "gpu_compute_partition") or _WHOLE
        if mode == _WHOLE and len(parts) == 1:
            yield device
        else:
            name = f"{device.name} {mode}"
            yield msgspec.structs.replace(device, name=name, mig=True, parent=first, slices=(1, len(parts)))


def _read_device(uuid: str, reader: GpuReader, address: str, sysfs: Path) -> Gpu:
    asic: Mapping[str, Any] = reader.ask("asic", "gpu_asic_info") or {}
    enumeration: Mapping[str, Any] = reader.ask("uuid", "gpu_enumeration_info") or {}
    minor = enumeration.get("drm_render")
    return Gpu(
        index=-1,
        uuid=uuid,
        name=asic.get("market_name") or "unknown",
        pci_bus_id=address,
        numa_node=numa_node(sysfs, address),
        memory_bytes=reader.ask("memory", "gpu_memory_total", reader.module.AmdSmiMemoryType.VRAM),
        vendor="AMD",
        render_node=f"renderD{minor}" if isinstance(minor, int) else _render_node(sysfs, address),
    )


def _render_node(sysfs: Path, address: str) -> str | msgspec.UnsetType:
    """The render node of a whole GPU, where an older package does not tell."""
    names = sorted(path.name for path in (sysfs / "bus/pci/devices" / address / "drm").glob("renderD*"))
    return names[0] if len(names) == 1 else msgspec.UNSET


def _unusable(reader: GpuReader) -> str:
    why = "; ".join(reader.errors.values()) or "no UUID of its own or no PCI address"
    return f"an AMD GPU does not answer ({why}): not used"

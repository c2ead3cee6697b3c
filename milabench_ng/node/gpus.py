"""The GPUs of a node. Each is identified by UUID and PCI address, not by position.

A driver may enumerate in another order than the runtime of its programs, and an index changes with visibility;
therefore every later read looks its GPU up by UUID.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.plan import Device, Vendor

_MIG_PROFILE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)")


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a tenant can have: a GPU, or a MIG instance of one."""

    index: int
    """Position among the devices of the node, in PCI order."""
    uuid: str
    name: str
    pci_bus_id: str
    """In sysfs's format: ``0000:17:00.0``. A MIG instance has its GPU's."""
    numa_node: int | None
    """None if the kernel does not know it, as is usual in virtual machines."""
    memory_bytes: int | None
    mig: bool = False
    """Whether it is a part of a GPU: a MIG instance of NVIDIA, or a compute partition of AMD."""
    parent: str | None = None
    """UUID of the GPU that a part is cut from; of a partition, that of the first one."""
    slices: tuple[int, int] | None = None
    """The compute slices of a part, and how many its GPU has; None if the driver does not tell."""
    capability: float | None = None
    """The compute capability, such as 9.0; None if the driver does not tell."""
    vendor: Vendor | msgspec.UnsetType = msgspec.UNSET
    """Omitted for NVIDIA."""
    render_node: str | msgspec.UnsetType = msgspec.UNSET
    """The file below ``/dev/dri`` through which programs use an AMD device, such as ``renderD128``."""

    @property
    def maker(self) -> Vendor:
        """Whose driver shows it."""
        return "NVIDIA" if self.vendor is msgspec.UNSET else self.vendor

    @property
    def profile(self) -> str | None:
        """What its vendor calls the size of a part; None of a whole GPU.

        Such as ``3g.40gb`` (NVIDIA's MIG User Guide), or the mode of a partition, such as ``CPX`` (AMD).
        """
        if self.mig and self.maker == "AMD":
            return self.name.rpartition(" ")[2]
        found = _MIG_PROFILE.search(self.name) if self.mig else None
        return found[1] if found else None

    @property
    def part(self) -> float | None:
        """The part of its GPU's compute slices that it has; None if unknown, and of a whole GPU."""
        return self.slices[0] / self.slices[1] if self.slices else None

    @property
    def board(self) -> str:
        """UUID of the physical GPU; power, clocks and temperature are known for it only."""
        return self.parent or self.uuid


class NoSuchDevicesError(InputError):
    """The node has not the devices that were asked for.

    ``asked``: by which option or variable, and what there is instead. ``remedy``: what to ask for, where one can.
    """

    def __init__(self, asked: str, remedy: str) -> None:
        super().__init__(f"{asked}. {remedy}")
        self.asked = asked


def select(devices: Sequence[Gpu], wanted: Sequence[str], where: str = "--gpus") -> tuple[Gpu, ...]:
    """The devices that ``where`` names by index, UUID (or its unambiguous beginning) or PCI address, in node order.

    Naming nothing selects all. Raises ``InputError`` for missing, ambiguous and repeated names.
    """
    if not wanted:
        return tuple(devices)
    chosen = [_named(devices, name.strip(), where) for name in wanted]
    twice = {gpu.index for gpu in chosen if chosen.count(gpu) > 1}
    if twice:
        names = ", ".join(str(index) for index in sorted(twice))
        asked = f"{where} {','.join(wanted)}: device {names} is named more than once"
        raise NoSuchDevicesError(asked, "Name each device once")
    return tuple(sorted(chosen, key=lambda gpu: gpu.index))


def _named(devices: Sequence[Gpu], name: str, where: str) -> Gpu:
    exact = [gpu for gpu in devices if name.lower() in (str(gpu.index), gpu.uuid.lower())]
    exact = exact or [gpu for gpu in devices if name.lower() == gpu.pci_bus_id]
    begins = name.upper().startswith(("GPU-", "MIG-"))
    matches = exact or [gpu for gpu in devices if begins and gpu.uuid.lower().startswith(name.lower())]
    if len(matches) == 1:
        return matches[0]
    there = "; ".join(f"{gpu.index} = {gpu.uuid} ({gpu.name}, {gpu.pci_bus_id})" for gpu in devices)
    found = f"fits {len(matches)} devices" if matches else "is not on this node"
    raise NoSuchDevicesError(f"{where}: {name!r} {found}", f"Use an index or a UUID of: {there or 'no GPU at all'}")


def smallest_memory(devices: Sequence[Device], gpus: Sequence[Gpu], per_device: int = 1) -> DeviceMemory | None:
    """The least memory of a tenant of ``devices``, or the first that the driver does not tell; None on the CPU.

    ``gpus``: the node's devices, looked up by UUID. ``per_device``: how many tenants divide the memory of each.
    """
    known = {gpu.uuid: gpu.memory_bytes and gpu.memory_bytes // per_device for gpu in gpus}
    found = [
        DeviceMemory(f"device {one.index} ({one.name})", known.get(one.uuid)) for one in devices if one.uuid is not None
    ]
    return min(found, key=lambda memory: memory.bytes or 0, default=None)

"""The node's GPUs, as NVML and the PCI bus show them. A GPU is identified by UUID and PCI address, not by position.

NVML may enumerate in a different order than CUDA, and an index changes with visibility; therefore every later read
looks its GPU up by UUID. Without the driver, the library or the Python module there are no devices, and the reason is
kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.plan import Device
from milabench_ng.node.pci_gpus import numa_node

# nvml.h: invalid argument, not supported, no permission, not found, function not found, version of argument, deprecated
_UNSUPPORTED = frozenset({2, 3, 4, 6, 13, 25, 26})

_MIG_PROFILE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)")

# Member of the value union by NVML_VALUE_TYPE_* (nvml.h).
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


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
    parent: str | None = None
    """UUID of the GPU that a MIG instance is cut from."""
    slices: tuple[int, int] | None = None
    """The compute slices of a MIG instance, and how many its GPU has; None if the driver does not tell."""
    capability: float | None = None
    """The compute capability, such as 9.0; None if the driver does not tell."""

    @property
    def profile(self) -> str | None:
        """What NVIDIA calls the size of a MIG instance, such as ``3g.40gb`` (MIG User Guide); None of a whole GPU."""
        found = _MIG_PROFILE.search(self.name) if self.mig else None
        return found[1] if found else None

    @property
    def part(self) -> float | None:
        """The part of its GPU's compute slices that a MIG instance has; None if unknown, and of a whole GPU."""
        return self.slices[0] / self.slices[1] if self.slices else None

    @property
    def board(self) -> str:
        """UUID of the physical GPU; power, clocks and temperature are known for it only."""
        return self.parent or self.uuid


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML shows."""

    devices: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    """The newest CUDA version that the driver supports."""
    problem: str | None = None
    """Why there is no NVML, if there is none."""
    notes: tuple[str, ...] = ()
    """GPUs that exist but cannot be used, and why."""


class GpuReader:
    """Reads one GPU. What cannot be read is None, and named in ``unsupported`` or ``errors``."""

    def __init__(self, module: Any, locate: Callable[[], Any]) -> None:
        self._module = module
        self.unsupported: set[str] = set()
        """Names of values unavailable with this GPU, driver or permission."""
        self.errors: dict[str, str] = {}
        """Other failures, such as a lost GPU, by name of the value."""
        self._handle = self._try("handle", locate)

    def ask(self, name: str, question: str, *args: Any) -> Any:
        """The answer of ``nvmlDeviceGet<question>``; ``name`` identifies the value if it cannot be read."""
        if self._handle is None:
            return None
        # Looked up inside: with a driver older than the module, functions are missing, and the module raises only then.
        return self._try(name, lambda: getattr(self._module, f"nvmlDeviceGet{question}")(self._handle, *args))

    def fields(self, wanted: Mapping[str, int]) -> dict[str, float | None]:
        """Field values by name, in one call: ``wanted`` maps names to NVML_FI_DEV_* numbers."""
        answers = self.ask("fields", "FieldValues", list(wanted.values()))
        if answers is None:
            return dict.fromkeys(wanted)
        return {name: self._field(name, answer) for name, answer in zip(wanted, answers, strict=True)}

    def instances(self) -> Iterator[GpuReader]:
        """Readers of the GPU's MIG instances; none if MIG is off."""
        for position in range(self.ask("mig_instances", "MaxMigDeviceCount") or 0):
            handle = self.ask("mig_instance", "MigDeviceHandleByIndex", position)
            if handle is not None:
                yield GpuReader(self._module, lambda found=handle: found)  # type: ignore[misc]

    def _field(self, name: str, answer: Any) -> float | None:
        if answer.nvmlReturn == 0:
            value: float = getattr(answer.value, _VALUE_MEMBERS[answer.valueType])
            return value
        self._note(name, answer.nvmlReturn, f"NVML error {answer.nvmlReturn}")
        return None

    def _try(self, name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except self._module.NVMLError as error:
            self._note(name, error.value, str(error))
            return None

    def _note(self, name: str, code: int, text: str) -> None:
        if code in _UNSUPPORTED:
            self.unsupported.add(name)
        else:
            self.errors[name] = text


class Nvml:
    """An NVML session, as a context manager. If there is none, ``problem`` says why, and no GPU is shown."""

    def __init__(self, module: Any, problem: str | None = None) -> None:
        self.module = module
        self.problem = problem

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session; the library stays loaded."""
        if self.problem is None:
            self.module.nvmlShutdown()
            self.problem = "NVML cannot be used: the session is closed"

    def ask(self, question: str) -> Any:
        """The answer of ``nvml<question>``, which concerns no particular GPU; None if there is none."""
        try:
            return getattr(self.module, f"nvml{question}")()
        except self.module.NVMLError:
            return None

    def reader(self, uuid: str) -> GpuReader:
        """The reader of a GPU or MIG instance."""
        return GpuReader(self.module, lambda: self.module.nvmlDeviceGetHandleByUUID(uuid))

    def readers(self) -> Iterator[GpuReader]:
        """The readers of all GPUs that NVML lists, in NVML's order."""
        if self.problem is None:
            for position in range(self.ask("DeviceGetCount") or 0):
                yield GpuReader(self.module, lambda at=position: self.module.nvmlDeviceGetHandleByIndex(at))  # type: ignore[misc]


def open_nvml(module: Any = None) -> Nvml:
    """Open an NVML session, through ``pynvml`` unless another module with its interface is given.

    Opening can take seconds on a node without persistence mode: keep the session, so that reads stay cheap.
    """
    if module is None:
        try:
            import pynvml
        except ImportError:
            return Nvml(
                None, "NVML cannot be used: the Python module pynvml is not installed. Run: pip install nvidia-ml-py"
            )
        module = pynvml
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        return Nvml(
            None, f"NVML cannot be used: {error}. If this node has NVIDIA GPUs, run nvidia-smi to check the driver"
        )
    return Nvml(module)


def read_gpus(nvml: Nvml | None = None, sysfs: Path = Path("/sys")) -> Gpus:
    """All devices that NVML shows, in PCI order. Opens and closes a session if none is given.

    A GPU in MIG mode is replaced by its instances; without any, it cannot be used, which is noted.
    """
    if nvml is None:
        with open_nvml() as session:
            return read_gpus(session, sysfs)
    if nvml.problem is not None:
        return Gpus(problem=nvml.problem)
    found: list[Gpu] = []
    notes: list[str] = []
    for reader in nvml.readers():
        devices, note = _read_devices(reader, sysfs)
        found += devices
        notes += [note] if note else []
    # A stable sort: the instances of one GPU stay in NVML's order.
    found.sort(key=lambda gpu: gpu.pci_bus_id)
    devices = [msgspec.structs.replace(gpu, index=index) for index, gpu in enumerate(found)]
    return Gpus(
        devices=tuple(devices),
        driver=nvml.ask("SystemGetDriverVersion"),
        cuda=_cuda_version(nvml.ask("SystemGetCudaDriverVersion")),
        notes=tuple(notes),
    )


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
        raise InputError(f"{where} {','.join(wanted)}: device {names} is named more than once. Name each device once")
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
    raise InputError(f"{where}: {name!r} {found}. Use an index or a UUID of: {there or 'no GPU at all'}")


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


def _cuda_version(number: int | None) -> str | None:
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def smallest_memory(devices: Sequence[Device], gpus: Sequence[Gpu], per_device: int = 1) -> DeviceMemory | None:
    """The least memory of a tenant of ``devices``, or the first that the driver does not tell; None on the CPU.

    ``gpus``: the node's devices, looked up by UUID. ``per_device``: how many tenants divide the memory of each.
    """
    known = {gpu.uuid: gpu.memory_bytes and gpu.memory_bytes // per_device for gpu in gpus}
    found = [
        DeviceMemory(f"device {one.index} ({one.name})", known.get(one.uuid)) for one in devices if one.uuid is not None
    ]
    return min(found, key=lambda memory: memory.bytes or 0, default=None)

"""Opens the drivers of all vendors, and reads the GPUs that they show together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Self

import msgspec

from milabench_ng.model.grouping import gathered
from milabench_ng.model.plan import Vendor
from milabench_ng.node.drivers.amd_smi.driver import AMD
from milabench_ng.node.drivers.interface import Backend, FaultEvents, GpuDriver
from milabench_ng.node.drivers.nvml.driver import NVIDIA
from milabench_ng.node.gpus import Gpu

BACKENDS: Mapping[Vendor, Backend] = {backend.vendor: backend for backend in (NVIDIA, AMD)}


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """What the drivers show."""

    devices: tuple[Gpu, ...] = ()
    """In PCI order."""
    versions: dict[Vendor, str] = {}
    """The version of each driver."""
    runtimes: dict[Vendor, str] = {}
    """The newest runtime, such as CUDA, that each driver supports."""
    notes: tuple[str, ...] = ()
    """GPUs that exist but cannot be used, and why."""


class Drivers:
    """The sessions with the drivers, as a context manager."""

    def __init__(self, *drivers: GpuDriver) -> None:
        self._drivers = {driver.vendor: driver for driver in drivers}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[GpuDriver]:
        return iter(self._drivers.values())

    @property
    def problems(self) -> dict[Vendor, str]:
        """Why there is no session where there should be one, by vendor."""
        return {vendor: driver.problem for vendor, driver in self._drivers.items() if driver.problem is not None}

    def of(self, gpu: Gpu) -> GpuDriver:
        """The driver of a device."""
        return self._drivers[gpu.maker]

    def version_of(self, devices: Iterable[Gpu]) -> str | None:
        """The version of the driver of these devices; of more than one driver, all."""
        makers = {gpu.maker for gpu in devices}
        versions = (driver.version() for driver in self if driver.vendor in makers)
        return ", ".join(version for version in versions if version is not None) or None

    def faults(self, devices: Iterable[Gpu]) -> tuple[FaultEvents, ...]:
        """What each driver reports of its own accord about these devices."""
        boards = gathered((gpu.maker, gpu.board) for gpu in devices)
        return tuple(self._drivers[vendor].faults(tuple(dict.fromkeys(uuids))) for vendor, uuids in boards.items())

    def close(self) -> None:
        """End all sessions."""
        for driver in self:
            driver.close()


def built_for(torch: str | None) -> Vendor | None:
    """The vendor of the GPUs that a version of torch can use; None if it is unknown, or built for the CPU. Pure."""
    release, _, local = (torch or "").partition("+")
    if release and not local:  # PyPI's wheels
        return "NVIDIA"
    return next((vendor for vendor, backend in BACKENDS.items() if local.startswith(backend.torch_build)), None)


def usable() -> tuple[Backend, ...]:
    """The back ends of the vendors whose GPUs torch can use; all, if it does not say.

    A display of another vendor is no device that a tenant could have.
    """
    try:
        vendor = built_for(metadata.version("torch"))
    except metadata.PackageNotFoundError:
        vendor = None
    return tuple(backend for backend in BACKENDS.values() if vendor in (None, backend.vendor))


def open_drivers() -> Drivers:
    """Open a session with the driver of each vendor whose GPUs torch can use. Keep them: opening can take seconds."""
    return Drivers(*(backend.open() for backend in usable()))


def read_gpus(drivers: Drivers | None = None, sysfs: Path = Path("/sys")) -> Gpus:
    """All devices that the drivers show; opens and closes them if none are given.

    A board that is cut into parts is replaced by them.
    """
    if drivers is None:
        with open_drivers() as opened:
            return read_gpus(opened, sysfs)
    answering = [driver for driver in drivers if driver.problem is None]
    found = [driver.found(sysfs) for driver in answering]
    # A stable sort: the parts of one board stay in its driver's order.
    devices = sorted((gpu for one in found for gpu in one.devices), key=lambda gpu: gpu.pci_bus_id)
    return Gpus(
        devices=tuple(msgspec.structs.replace(gpu, index=index) for index, gpu in enumerate(devices)),
        versions={driver.vendor: version for driver in answering if (version := driver.version()) is not None},
        runtimes={driver.vendor: runtime for driver in answering if (runtime := driver.runtime()) is not None},
        notes=tuple(note for one in found for note in one.notes),
    )

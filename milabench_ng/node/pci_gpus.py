"""Lists the GPUs on the PCI bus from sysfs, with or without a driver."""

from __future__ import annotations

from pathlib import Path

import msgspec

from milabench_ng.node.kernel_files import kernel_text

_VENDORS = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}


_DISPLAY_CLASS = 0x03


_ACCELERATOR_CLASS = 0x12


class PciGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A display controller or accelerator on the PCI bus, whether or not its driver shows it as a device."""

    pci_bus_id: str
    vendor: str
    device_id: str
    driver: str | None
    numa_node: int | None


def pci_gpus(sysfs: Path = Path("/sys")) -> tuple[PciGpu, ...]:
    """The display controllers and accelerators of NVIDIA, AMD and Intel on the PCI bus, with the driver bound to them.

    Class 0x03 is a display or 3D controller, 0x12 a processing accelerator (newer AMD boards), see the PCI code and ID
    assignment specification.
    """
    found = []
    for device in sorted(sysfs.glob("bus/pci/devices/*")):
        vendor, kind = _hexadecimal(device / "vendor"), _hexadecimal(device / "class") >> 16
        if vendor in _VENDORS and kind in (_DISPLAY_CLASS, _ACCELERATOR_CLASS):
            driver = device / "driver"
            gpu = PciGpu(
                pci_bus_id=device.name,
                vendor=_VENDORS[vendor],
                device_id=f"{vendor:04x}:{_hexadecimal(device / 'device'):04x}",
                driver=driver.resolve().name if driver.exists() else None,
                numa_node=numa_node(sysfs, device.name),
            )
            found.append(gpu)
    return tuple(found)


def _hexadecimal(path: Path) -> int:
    return int(kernel_text(path) or "0", 16)


def numa_node(sysfs: Path, bus_id: str) -> int | None:
    node = int(kernel_text(sysfs / "bus/pci/devices" / bus_id / "numa_node") or "-1")
    return node if node >= 0 else None

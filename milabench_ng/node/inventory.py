"""The node's inventory: machine, CPUs, memory, GPUs, and the versions of the software that results depend on."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import msgspec

from milabench_ng import __version__
from milabench_ng.model.bounds import WholeNumber
from milabench_ng.node.drivers.opening import Drivers, Gpus, open_drivers, read_gpus, usable
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.kernel_files import kernel_text
from milabench_ng.node.pci_gpus import PciGpu, pci_gpus
from milabench_ng.node.topology import Topology, read_topology

_PACKAGES = (
    *("torch", "torchvision", "triton", "numpy", "pillow", "msgspec"),
    *("cgroupspy", "psutil", "threadpoolctl"),
)

# NVIDIA's packages had the CUDA major version in their names until CUDA 13; some still do.
_CUDA_LIBRARIES = {
    "cuda-runtime": "nvidia-cuda-runtime",
    "cublas": "nvidia-cublas",
    "cudnn": "nvidia-cudnn",
    "nccl": "nvidia-nccl",
    "nvshmem": "nvidia-nvshmem",
}
_CUDA_SUFFIXES = ("", "-cu13", "-cu12", "-cu11")

# Names of hypervisors in DMI, the kernel's command line or ACPI tables.
_HYPERVISORS = {
    "firecracker": "Firecracker",
    "fireck": "Firecracker",
    "cloud-hypervisor": "Cloud Hypervisor",
    "amazon ec2": "Amazon EC2",
    "google compute engine": "Google Compute Engine",
    "vmware": "VMware",
    "virtualbox": "VirtualBox",
    "microsoft corporation virtual machine": "Hyper-V",
    "openstack": "OpenStack",
    "kvm": "KVM",
    "qemu": "QEMU",
}


class Cpus(msgspec.Struct, frozen=True, kw_only=True):
    """The online CPUs."""

    model: str
    sockets: int
    cores: int
    threads: int
    numa_nodes: int

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.sockets} x {self.model}, {self.cores} cores in all"


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What the node is."""

    hostname: str
    boot_id: str | None
    machine: str | None
    """Vendor and product according to the firmware (DMI)."""
    virtualization: str | None
    """The hypervisor, as far as it is visible; None on bare metal."""
    container: str | None
    os: str
    kernel: str
    architecture: str
    cpus: Cpus
    memory_bytes: WholeNumber
    """Virtual machines with growing memory show little here until it is used."""
    swap_bytes: int
    gpus: tuple[Gpu, ...]
    pci_gpus: tuple[PciGpu, ...]
    """All GPUs on the PCI bus, including those that no driver shows."""
    nvidia_driver: str | None
    cuda_driver: str | None
    """The newest CUDA version that the driver supports."""
    gpu_notes: tuple[str, ...]
    """Why GPUs, or the library of their driver, cannot be used."""
    versions: dict[str, str]
    mps: str | None = None
    """The daemon of NVIDIA's Multi-Process Service that tenants would find, in words; None if there is none."""
    amd_driver: str | msgspec.UnsetType = msgspec.UNSET
    """The version of AMD's kernel driver; omitted without one."""

    @property
    def driver(self) -> str | None:
        """The version of the driver of its GPUs; of two vendors, both."""
        makers = {gpu.maker for gpu in self.gpus} or {"NVIDIA"}
        nvidia = self.nvidia_driver if "NVIDIA" in makers else None
        amd = self.amd_driver if "AMD" in makers else None
        return ", ".join(version for version in (nvidia, amd) if version) or None


def read_inventory(drivers: Drivers | None = None, root: Path = Path("/")) -> Inventory:
    """Read the node's inventory. Opens and closes the drivers if none are given."""
    if drivers is None:
        with open_drivers() as opened:
            return read_inventory(opened, root)
    shown, topology = read_gpus(drivers, root / "sys"), read_topology(root / "sys", root / "proc")
    return Inventory(
        hostname=socket.gethostname(),
        boot_id=kernel_text(root / "proc/sys/kernel/random/boot_id"),
        machine=_machine(root),
        virtualization=_virtualization(root),
        container=_container(root),
        os=_os_name(root),
        kernel=kernel_text(root / "proc/sys/kernel/osrelease") or platform.release(),
        architecture=platform.machine(),
        cpus=_cpus(topology, root),
        memory_bytes=topology.memory_bytes,
        swap_bytes=topology.swap_bytes,
        gpus=shown.devices,
        pci_gpus=pci_gpus(root / "sys"),
        nvidia_driver=shown.versions.get("NVIDIA"),
        cuda_driver=shown.runtimes.get("NVIDIA"),
        gpu_notes=(*shown.notes, *_problems(drivers, shown)),
        versions=read_versions(),
        mps=find_mps(os.environ, root),
        amd_driver=shown.versions.get("AMD", msgspec.UNSET),
    )


def _problems(drivers: Drivers, shown: Gpus) -> Iterable[str]:
    """Why a vendor's library cannot be used; on a node whose GPUs are another vendor's, none is needed."""
    makers = {gpu.maker for gpu in shown.devices}
    return (problem for vendor, problem in drivers.problems.items() if not makers or vendor in makers)


def read_versions() -> dict[str, str]:
    """Versions by package, from package metadata only: nothing is imported.

    ``cuda`` is the version that torch was built for, if torch's version names it (``2.11.0+cu130``), else that of the
    CUDA runtime package, which PyPI's plain wheels pin; it is absent if there is neither.
    """
    versions = {"python": platform.python_version(), "implementation": sys.implementation.name, "mnb": __version__}
    found = {name: _version([name]) for name in (*_PACKAGES, *(backend.package for backend in usable()))}
    found |= {
        name: _version(f"{package}{suffix}" for suffix in _CUDA_SUFFIXES) for name, package in _CUDA_LIBRARIES.items()
    }
    versions |= {name: version for name, version in found.items() if version is not None}
    cuda = cuda_build(versions.get("torch", ""), versions.get("cuda-runtime"))
    return versions if cuda is None else {**versions, "cuda": cuda}


def cuda_build(torch: str, runtime: str | None) -> str | None:
    """The CUDA version of a torch build, from the versions of torch and the CUDA runtime package.

    None for a build without CUDA (``2.15.0+cpu``) and for one of another vendor (``+rocm6.4``).
    """
    _, plus, local = torch.partition("+")
    if local.startswith("cu") and local[2:].isdecimal():
        return f"{local[2:-1]}.{local[-1]}"
    if plus or not torch or runtime is None:
        return None
    return ".".join(runtime.split(".")[:2])


def _cpus(topology: Topology, root: Path) -> Cpus:
    return Cpus(
        model=_cpu_model(root),
        sockets=len({cpu.package for cpu in topology.cpus}),
        cores=len({cpu.core for cpu in topology.cpus}),
        threads=len(topology.cpus),
        numa_nodes=len(topology.nodes),
    )


def _version(names: Iterable[str]) -> str | None:
    """The version of the first installed package of ``names``."""
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _machine(root: Path) -> str | None:
    dmi = root / "sys/class/dmi/id"
    texts = (kernel_text(dmi / name) for name in ("sys_vendor", "product_name"))
    return " ".join(text for text in texts if text) or None


def _virtualization(root: Path) -> str | None:
    """The hypervisor by name, else just that there is one: every x86 guest has the CPU flag ``hypervisor``."""
    xen = kernel_text(root / "sys/hypervisor/type")
    if xen:
        return xen.capitalize()
    acpi = kernel_text(root / "sys/firmware/acpi/tables/FACP") or ""
    hints = " ".join((_machine(root) or "", kernel_text(root / "proc/cmdline") or "", acpi)).lower()
    guest = " hypervisor" in (kernel_text(root / "proc/cpuinfo") or "")
    # Cloud vendors sell bare metal under the names of their virtual machines, but there the flag is missing.
    if not guest and platform.machine() in ("x86_64", "AMD64"):
        return None
    named = next((name for mark, name in _HYPERVISORS.items() if mark in hints), None)
    return named or ("unknown hypervisor" if guest else None)


def _container(root: Path) -> str | None:
    """The container runtime, from systemd's marker file, else from Docker's or Podman's."""
    markers = {".dockerenv": "docker", "run/.containerenv": "podman"}
    told = kernel_text(root / "run/systemd/container")
    return told or next((name for marker, name in markers.items() if (root / marker).exists()), None)


def _os_name(root: Path) -> str:
    for line in (kernel_text(root / "etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return platform.system()


def _cpu_model(root: Path) -> str:
    """The CPU's ``model name`` on x86; Arm only gives numbers, so the architecture is used there."""
    for line in (kernel_text(root / "proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_DAEMON = "nvidia-cuda-mps-control"[:15]
"""Its name in ``/proc``, which has 15 characters of it (proc(5))."""


def find_mps(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """The MPS daemon that CUDA programs of this environment would find, in words; None if there is none.

    Through it, programs of several tenants share a GPU at the same time; without it they take turns (NVIDIA's guide to
    MPS, environment variables). ``mnb`` starts and stops none. A daemon outside the container has no process here, so
    its control pipe alone counts.
    """
    pipes = environ.get(_PIPES) or "/tmp/nvidia-mps"  # where the daemon puts them
    if not (root / pipes.lstrip("/") / "control").exists():
        return None
    daemons = [path.parent.name for path in root.glob("proc/[0-9]*/comm") if kernel_text(path) == _DAEMON]
    return f"{pipes}, {f'process {min(daemons, key=int)}' if daemons else 'no process seen'}"

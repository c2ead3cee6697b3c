"""A made-up node on which nothing is wrong: fence, conditions, inventory and storage, as a result folder holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milabench_ng.model.plan import Device
from milabench_ng.node.conditions import Conditions, HostSettings, HostState, Settings
from milabench_ng.node.gpu_conditions import GpuSettings, GpuState
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.inventory import Cpus, Inventory
from milabench_ng.node.pci_gpus import PciGpu
from milabench_ng.node.storage import Storage
from milabench_ng.records.isolation import Confinement, Effective, Isolation, ProcView, Scheduling, Share, Usage
from milabench_ng.records.surroundings import Surroundings


def fence(index: int, run_id: str) -> Isolation:
    """Full isolation: two CPUs and 1 GiB for each device."""
    cpus = (2 * index, 2 * index + 1)
    held = Effective(cpus=cpus, mems=(0,), memory_bytes=1 << 30, swap_bytes=0, oom_group=True, pids=4096)
    return Isolation(
        backend="cgroup2",
        tier="full",
        mode="v2",
        kernel="6.18",
        parent="/sys/fs/cgroup",
        group=f"{run_id}/{index}",
        requested=Share(
            cpus=cpus, mems=(0,), memory_bytes=1 << 30, memory_nominal_bytes=1 << 30, pids=4096, cores=2, nodes=(0,)
        ),
        effective=held,
        effective_end=held,
        proc=ProcView(
            pid=1,
            groups=(f"0::/mnb/{run_id}/{index}",),
            cpus_allowed=cpus,
            mems_allowed=(0,),
            threads=1,
            open_fds={},
            confinement=Confinement(
                cgroup_namespace=True, groups_read_only=True, ipc_namespace=True, no_new_privs=True, capabilities=()
            ),
            scheduling=Scheduling(policy="other", nice=0, limits={}),
        ),
        usage=Usage(cpu_usec=3_000_000),
        disjoint=True,
    )


def conditions(time_s: float, devices: Sequence[int], utc: str = "2026-01-06T16:00:00.123456Z") -> Conditions:
    """A node at rest, with nothing wrong."""
    gpu: dict[str, Any] = dict.fromkeys(GpuState.__struct_fields__, None) | {
        "throttled_ns": dict.fromkeys(("sw_thermal", "hw_thermal", "hw_power_brake"), 0.0),
        "ecc_uncorrected": 0,
        "remapped_rows": (0, 0, 0, 0),
        "foreign_pids": (),
    }
    setting: dict[str, Any] = dict.fromkeys(GpuSettings.__struct_fields__, None) | {
        "power_limit_w": 700.0,
        "default_power_limit_w": 700.0,
        "ecc": True,
        "ecc_pending": True,
    }
    host: dict[str, Any] = dict.fromkeys(HostState.__struct_fields__, None) | {"load": (0.0, 0.0, 0.0)}
    own: dict[str, Any] = dict.fromkeys(HostSettings.__struct_fields__, None) | {
        "kernel": "6.18",
        "command_line": "quiet",
        "mitigations": {},
        "governors": {},
        "covered": (),
    }
    names = [f"GPU-{index}" for index in devices]
    return Conditions(
        time_s=time_s,
        utc=utc,
        host=HostState(**host),
        gpus={name: GpuState(**gpu) for name in names},
        settings=Settings(
            host=HostSettings(**own),
            driver="580.1",
            gpus={name: GpuSettings(**setting | {"pci_bus_id": _bus(int(name[4:]))}) for name in names},
        ),
        unsupported=("sw_power_cap", "sync_boost", *(name for name, value in gpu.items() if value is None)),
    )


def surroundings(time_s: float, devices: Sequence[int]) -> Surroundings:
    """Nobody else on the CPUs of the shares."""
    return Surroundings(time_s=time_s, cpus=2 * len(devices), cpu_limits=(), contested=(), machinery_cpu_s=time_s / 100)


def _bus(index: int) -> str:
    return f"0000:{index + 1:02x}:00.0"


def inventory(devices: Sequence[Device]) -> Inventory:
    """A node whose every GPU is in the plan."""
    gpus = [
        Gpu(
            index=one.index,
            uuid=str(one.uuid),
            name=one.name,
            pci_bus_id=_bus(one.index),
            numa_node=0,
            memory_bytes=1,
            mig=one.kind == "mig",
            parent=str(one.uuid) if one.kind == "mig" else None,
            slices=(round(7 * one.known_part), 7) if one.kind == "mig" else None,
        )
        for one in devices
    ]
    return Inventory(
        hostname="node",
        boot_id="boot",
        machine=None,
        virtualization=None,
        container=None,
        os="Linux",
        kernel="6.18",
        architecture="x86_64",
        cpus=Cpus(model="CPU", sockets=1, cores=16, threads=16, numa_nodes=1),
        memory_bytes=1 << 36,
        swap_bytes=0,
        gpus=tuple(gpus),
        pci_gpus=tuple(
            PciGpu(pci_bus_id=gpu.pci_bus_id, vendor="NVIDIA", device_id="10de:2335", driver="nvidia", numa_node=0)
            for gpu in gpus
        ),
        nvidia_driver="580.1",
        cuda_driver="13.0",
        gpu_notes=(),
        versions={"torch": "2.15.0"},
    )


def storage(path: str) -> Storage:
    """A disk."""
    return Storage(
        path=path,
        mount_point="/",
        filesystem="ext4",
        kind="disk",
        source="/dev/vda",
        device="vda",
        options=(),
        rotational=False,
        total_bytes=1 << 40,
        free_bytes=1 << 39,
    )

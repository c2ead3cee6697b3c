"""What each source reads."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import LOST, FakeGpu, FakeNvml

from milabench_ng.node.drivers.nvml.driver import open_nvml
from milabench_ng.node.drivers.opening import Drivers, read_gpus
from milabench_ng.telemetry.gpu import GpuSource
from milabench_ng.telemetry.host import Counters, HostSource, rates, whole_disks
from milabench_ng.telemetry.messages import Watch
from milabench_ng.telemetry.sampler import wanted
from milabench_ng.telemetry.tenant import TenantFiles, TenantSource

MIB = 1 << 20


def busy_gpu(uuid: str = "GPU-aa11") -> FakeGpu:
    gpu = FakeGpu(
        uuid,
        "00000000:03:00.0",
        fields={74: 2_500_000_000, 82: 60},
        UtilizationRates=SimpleNamespace(gpu=97, memory=50),
        MemoryInfo=SimpleNamespace(total=1 << 34, used=512 * MIB),
        Temperature=66,
        PowerUsage=697_000,
        TotalEnergyConsumption=1_500,
        CurrentClocksEventReasons=0x24,
    )
    gpu.answers[("ClockInfo", 1)] = 1755
    return gpu


def source_of(*gpus: FakeGpu) -> GpuSource:
    nvml = Drivers(open_nvml(FakeNvml(*gpus)))
    return GpuSource(nvml, read_gpus(nvml).devices)


def test_gpu() -> None:
    source = source_of(busy_gpu())
    assert dict(source.read()) == {
        "GPU-aa11": {
            "memory_used_mib": 512,
            "utilization_pct": 97,
            "temperature_c": 66,
            "power_w": 697,
            "energy_j": 1.5,
            "sm_clock_mhz": 1755,
            "sw_power_cap_s": 2.5,
            "memory_temperature_c": 60,
            "reason_idle": 0,
            "reason_sw_power_cap": 1,
            "reason_hw_slowdown": 0,
            "reason_sw_thermal": 1,
            "reason_hw_thermal": 0,
            "reason_hw_power_brake": 0,
            "read_errors": 0,
        }
    }
    assert source.unsupported == (
        *("hw_power_brake_s", "hw_thermal_s", "memory_clock_mhz", "pcie_generation", "pcie_width", "sw_thermal_s"),
    )


def test_what_is_not_supported_is_asked_once_and_what_breaks_is_counted() -> None:
    gpu = busy_gpu()
    del gpu.answers["UtilizationRates"]
    source = source_of(gpu)
    gpu.answers |= {"PowerUsage": LOST, "Temperature": LOST}
    gpu.asked.clear()
    ((_, values),) = source.read()
    assert values["read_errors"] == 2
    assert not {"power_w", "temperature_c", "utilization_pct"} & values.keys()
    assert "UtilizationRates" not in gpu.asked
    assert "PcieThroughput" not in gpu.asked


def test_a_mig_instance_has_its_own_memory_and_the_power_of_its_gpu() -> None:
    gpu = busy_gpu("GPU-cut")
    gpu.answers["MigMode"] = [1, 1]
    gpu.instances = [
        FakeGpu(f"MIG-{number}", "", MemoryInfo=SimpleNamespace(total=1 << 33, used=number * MIB)) for number in (1, 2)
    ]
    read = dict(source_of(gpu).read())
    assert {uuid: (values["memory_used_mib"], values["power_w"]) for uuid, values in read.items()} == {
        "MIG-1": (1, 697),
        "MIG-2": (2, 697),
    }
    assert "utilization_pct" not in read["MIG-1"]


def test_only_the_gpus_of_the_run_are_read() -> None:
    nvml = Drivers(open_nvml(FakeNvml(busy_gpu("GPU-a"), busy_gpu("GPU-b"))))
    devices = read_gpus(nvml).devices
    read = {names: GpuSource(nvml, wanted(devices, names)).keys for names in (None, "GPU-b", "GPU-a,GPU-b", "")}
    assert read == {None: ("GPU-a", "GPU-b"), "GPU-b": ("GPU-b",), "GPU-a,GPU-b": ("GPU-a", "GPU-b"), "": ()}


def test_without_nvml_there_are_no_keys_and_a_note() -> None:
    with Drivers(open_nvml()) as drivers:
        if not drivers.problems:
            pytest.skip("this machine has NVML")
        source = GpuSource(drivers, read_gpus(drivers).devices)
        assert (source.keys, source.notes, list(source.read())) == ((), (drivers.problems["NVIDIA"],), [])


def group(folder: Path, **files: str) -> Watch:
    """A tree that looks like a cgroup; a double underscore in a name stands for the dot."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")
    paths = {name: str(folder / name.replace("__", ".")) for name in files}
    return Watch(
        key=folder.name,
        memory_stat=paths.get("memory__stat"),
        memory_current=paths.get("memory__current") or paths.get("memory__usage_in_bytes"),
        cpu_usage=paths.get("cpu__stat") or paths.get("cpuacct__usage"),
    )


def v2_group(folder: Path) -> Watch:
    return group(
        folder,
        memory__stat=f"anon {3 * MIB}\nfile {8 * MIB}\nkernel 5\nshmem {2 * MIB}",
        memory__current=str(12 * MIB),
        cpu__stat="usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000",
    )


def test_tenant_v2(tmp_path: Path) -> None:
    assert TenantFiles(v2_group(tmp_path / "t0")).read() == {
        "anon_mib": 3,
        "shmem_mib": 2,
        "file_mib": 8,
        "current_mib": 12,
        "cpu_s": 2.5,
    }


def test_tenant_v1_counts_the_groups_below(tmp_path: Path) -> None:
    order = group(
        tmp_path / "t0",
        memory__stat=f"cache 1\nrss 1\nshmem 1\ntotal_cache {8 * MIB}\ntotal_rss {3 * MIB}\ntotal_shmem {2 * MIB}",
        memory__usage_in_bytes=str(12 * MIB),
        cpuacct__usage="2500000000",
    )
    assert TenantFiles(order).read() == {"anon_mib": 3, "shmem_mib": 2, "file_mib": 8, "current_mib": 12, "cpu_s": 2.5}


def test_a_vanished_tenant_is_passed_by(tmp_path: Path) -> None:
    source = TenantSource()
    source.watch(v2_group(tmp_path / "t0"))
    source.watch(Watch(key="gone", memory_stat=str(tmp_path / "gone/memory.stat")))
    assert [key for key, _ in source.read()] == ["t0"]
    assert source.keys == ("t0", "gone")


def test_rates_of_the_host() -> None:
    before = Counters(time_s=10.0, cpu_s=(100.0, 1.0, 1000.0), disk_bytes=(0, 5 * MIB))
    after = Counters(time_s=12.0, cpu_s=(103.0, 1.5, 1004.0), disk_bytes=(8 * MIB, 5 * MIB))
    assert rates(before, after) == {
        "cpu_busy_pct": 75.0,
        "cpu_steal_pct": 12.5,
        "disk_read_mib_per_s": 4.0,
        "disk_write_mib_per_s": 0.0,
    }
    assert rates(before, before) == {}


def fake_host(folder: Path) -> HostSource:
    """A node with two disks, a partition and a device made of others."""
    (folder / "stat").write_text("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5 0 0\n")
    (folder / "meminfo").write_text("MemTotal:        8192 kB\nMemAvailable:    3072 kB\n")
    for disk, read, written in (
        ("nvme0n1", 100, 40),
        ("nvme0n1/nvme0n1p1", 100, 40),
        ("dm-0", 100, 40),
        ("sda", 10, 2),
    ):
        (folder / "block" / disk).mkdir(parents=True)
        (folder / "block" / disk / "stat").write_text(f"  1  0  {read}  0  1  0  {written}  0  0  0  0\n")
    for disk in ("nvme0n1", "sda"):
        (folder / "block" / disk / "device").mkdir()
    return HostSource(procfs=folder, sysfs=folder)


def test_disks_are_counted_once_and_partitions_not(tmp_path: Path) -> None:
    assert fake_host(tmp_path).counters().disk_bytes == (512 * 110, 512 * 42)
    assert [disk.name for disk in whole_disks(tmp_path)] == ["nvme0n1", "sda"]


def test_cpu_seconds_leave_guest_time_out(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    assert fake_host(tmp_path).counters().cpu_s == pytest.approx((19 / ticks, 8 / ticks, 36 / ticks))


def test_a_disk_that_was_pulled_out_is_not_counted(tmp_path: Path) -> None:
    fake_host(tmp_path)
    (tmp_path / "block/sda/stat").unlink()
    assert HostSource(procfs=tmp_path, sysfs=tmp_path).counters().disk_bytes == (512 * 100, 512 * 40)


def test_available_memory_is_that_of_the_kernel(tmp_path: Path) -> None:
    ((_, values),) = fake_host(tmp_path).read()
    assert values["memory_available_mib"] == 3.0


def test_this_host_gives_memory_and_load() -> None:
    ((key, values),) = HostSource().read()
    assert key == "node"
    assert values["memory_available_mib"] > 0
    assert values["load_1min"] >= 0

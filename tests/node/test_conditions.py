"""Conditions at the two edges of a batch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from fake_nvml import LOST, FakeGpu, FakeNvml

from milabench_ng.node.conditions import (
    Conditions,
    cpu_seconds,
    edges,
    read_conditions,
    throttled_fraction,
)
from milabench_ng.node.drivers.nvml.driver import open_nvml
from milabench_ng.node.drivers.opening import Drivers, open_drivers, read_gpus
from milabench_ng.node.kernel_files import kernel_table

UUID = "GPU-aa11"


def node(root: Path) -> Path:
    """A host with two frequency policies, a little swap in use and an Intel CPU with turbo off."""
    files = {
        "proc/sys/kernel/osrelease": "6.1.0",
        "proc/cmdline": "quiet isolcpus=3",
        "proc/self/mountinfo": "1 0 0:5 / /proc rw - proc proc rw\n2 1 0:6 /x /proc/stat ro - ext4 /dev/vda rw",
        "proc/stat": "cpu  100 0 50 800 10 5 5 30 40 0\ncpu0 100 0 50 800 10 5 5 30 40 0",
        "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB\nCached: 100 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB",
        "proc/vmstat": "pswpin 7\npswpout 8\noom_kill 1",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "1",
        "sys/devices/system/cpu/smt/control": "on",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance",
        "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "powersave",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3",
        "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "4",
        "sys/devices/system/cpu/vulnerabilities/meltdown": "Not affected",
        "sys/devices/system/cpu/vulnerabilities/spectre_v2": "Mitigation: Retpolines",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def h200() -> FakeGpu:
    """Answers as an H200 in a virtual machine gives them: no application clocks, no link width."""
    return FakeGpu(
        UUID,
        "00000000:03:00.0",
        fields={74: 5_000_000_000, 76: 0, 269: 0, 270: 1_000_000_000, 82: 42},
        PowerManagementLimit=650_000,
        PowerManagementDefaultLimit=700_000,
        EnforcedPowerLimit=650_000,
        PowerUsage=120_500,
        TotalEnergyConsumption=123_456,
        EccMode=[1, 0],
        Temperature=33,
        CurrentClocksEventReasons=4,
        TotalEccErrors=0,
        RemappedRows=(1, 0, 0, 0),
        CurrPcieLinkGeneration=5,
        CurrPcieLinkWidth=LOST,
        ComputeRunningProcesses=[SimpleNamespace(pid=11), SimpleNamespace(pid=22)],
        MigMode=[0, 0],
        PersistenceMode=1,
    )


def read(gpu: FakeGpu, root: Path) -> Conditions:
    gpu.answers |= {("ClockInfo", 1): 1980, ("ClockInfo", 2): 3201}
    with Drivers(open_nvml(FakeNvml(gpu))) as nvml:
        return read_conditions(nvml, read_gpus(nvml, root / "sys").devices, own_pids={22}, root=node(root))


def test_this_machine_fits_into_4_kib_a_record_and_survives_it() -> None:
    with open_drivers() as nvml:
        both = edges(read_conditions(nvml, ()), read_conditions(nvml, ()))
    text = msgspec.json.encode(both)
    assert len(text) < 4096
    assert msgspec.json.decode(text, type=dict[str, Conditions]) == both
    assert both["before"].settings is not None
    assert both["after"].settings is None
    assert both["after"].time_s > both["before"].time_s


def test_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.75390625, 0.25))
    conditions = read(h200(), tmp_path)
    assert conditions.settings is not None
    host = conditions.settings.host
    assert (host.kernel, host.command_line, host.smt) == ("6.1.0", "quiet isolcpus=3", "on")
    assert host.mitigations == {"spectre_v2": "Mitigation: Retpolines"}
    assert host.governors == {"performance": 1, "powersave": 1}
    assert (host.boost, host.transparent_hugepages, host.numa_balancing) == (False, "madvise", None)
    assert host.covered == ("ext4 on /proc/stat",)
    assert conditions.raw_s is not msgspec.UNSET
    assert conditions.raw_s > 0
    state = conditions.host
    assert state.load == (1.5, 0.75, 0.25)
    assert (state.memory_available_bytes, state.swap_used_bytes) == (600 * 1024, 30 * 1024)
    assert (state.pages_swapped_in, state.pages_swapped_out, state.oom_kills) == (7, 8, 1)
    assert state.thermal_throttles == 7


def test_cpu_seconds_leave_guest_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.PROCFS_PATH", str(node(tmp_path) / "proc"))
    assert cpu_seconds() == pytest.approx((1.6, 0.3, 10.0))


def test_gpu(tmp_path: Path) -> None:
    conditions = read(h200(), tmp_path)
    assert conditions.settings is not None
    settings, state = conditions.settings.gpus[UUID], conditions.gpus[UUID]
    assert (settings.power_limit_w, settings.default_power_limit_w) == (650.0, 700.0)
    assert (settings.ecc, settings.ecc_pending, settings.mig_mode, settings.persistence_mode) == (
        True,
        False,
        False,
        True,
    )
    assert (state.power_w, state.energy_mj, state.temperature_c, state.memory_temperature_c) == (120.5, 123456, 33, 42)
    assert (state.sm_clock_mhz, state.memory_clock_mhz) == (1980, 3201)
    assert (state.remapped_rows, state.foreign_pids) == ((1, 0, 0, 0), (11,))
    assert state.throttled_ns["sw_power_cap"] == 5e9
    assert state.throttled_ns["hw_power_brake"] is None


def test_what_is_not_supported_is_named_and_what_fails_otherwise_is_an_error(tmp_path: Path) -> None:
    conditions = read(h200(), tmp_path)
    assert "application_sm_clock_mhz" in conditions.unsupported
    assert "hw_power_brake" in conditions.unsupported
    assert "power_w" not in conditions.unsupported
    assert conditions.errors == {f"{UUID} pcie_width": "GPU is lost"}


def test_all_wanted_fields_are_asked_in_one_call_and_the_slow_question_never(tmp_path: Path) -> None:
    gpu = h200()
    read(gpu, tmp_path)
    assert gpu.asked.count("FieldValues") == 1
    assert "PcieThroughput" not in gpu.asked


def test_a_changed_power_limit_stays_visible(tmp_path: Path) -> None:
    gpu = h200()
    before = read(gpu, tmp_path)
    gpu.answers["PowerManagementLimit"] = 500_000
    after = edges(before, read(gpu, tmp_path))["after"]
    assert after.settings is not None
    assert after.settings.gpus[UUID].power_limit_w == 500.0


def test_throttled_fraction(tmp_path: Path) -> None:
    gpu = h200()
    before = msgspec.structs.replace(read(gpu, tmp_path), time_s=100.0)
    gpu.fields |= {74: 9_000_000_000, 270: 1_500_000_000, 271: 77}
    after = msgspec.structs.replace(read(gpu, tmp_path), time_s=110.0)
    # 4 s and 0.5 s of 10 s; the power brake was not read at the first edge.
    assert throttled_fraction(before, after) == {
        UUID: {"sw_power_cap": 0.4, "sync_boost": 0.0, "sw_thermal": 0.0, "hw_thermal": 0.05}
    }


def test_kernel_tables(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("anon 12\nusage: 3 kB\nnot a number\nlonely\n")
    assert kernel_table(tmp_path / "table") == {"anon": 12, "usage": 3072}
    assert kernel_table(tmp_path / "absent") == {}
    assert kernel_table(Path("/proc/meminfo"))["MemTotal"] > 0

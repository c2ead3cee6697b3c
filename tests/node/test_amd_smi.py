"""AMD's GPUs, told from answers of a stand-in for AMD SMI: no hardware has run any of it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_amdsmi import (
    DRIVER_NOT_LOADED,
    DRM_ERROR,
    NOT_SUPPORTED,
    AmdSmiClkType,
    AmdSmiMemoryType,
    FakeAmdGpu,
    FakeAmdSmi,
    metrics,
)
from fake_nvml import FakeGpu, FakeNvml

from milabench_ng.node.conditions import Conditions, read_conditions, throttled_fraction
from milabench_ng.node.drivers.amd_smi.driver import AmdSmi, open_amd_smi
from milabench_ng.node.drivers.amd_smi.metrics import HeldDown
from milabench_ng.node.drivers.amd_smi.session import open_session
from milabench_ng.node.drivers.interface import BOARD, OWN
from milabench_ng.node.drivers.nvml.driver import open_nvml
from milabench_ng.node.drivers.opening import Drivers, read_gpus
from milabench_ng.telemetry.gpu import GpuSource

ONE, TWO = "GPU-1a2b3c4d5e6f7081", "GPU-2222222222222222"


def mi300x(uuid: str = ONE, bdf: str = "0000:0C:00.0", **answers: Any) -> FakeAmdGpu:
    return FakeAmdGpu(uuid, bdf, **answers)


def drivers_of(*gpus: FakeAmdGpu, lacking: tuple[str, ...] = ()) -> Drivers:
    return Drivers(open_amd_smi(FakeAmdSmi(*gpus, lacking=lacking)))


def conditions_of(drivers: Drivers) -> Conditions:
    return read_conditions(drivers, read_gpus(drivers).devices, own_pids={22})


def test_gpus_are_named_as_rocr_names_them_and_know_their_render_node(tmp_path: Path) -> None:
    module = FakeAmdSmi(mi300x(TWO, "0000:22:00.0", render=129), mi300x())
    with Drivers(open_amd_smi(module)) as drivers:
        shown = read_gpus(drivers, tmp_path)
    assert [(gpu.index, gpu.uuid, gpu.pci_bus_id, gpu.render_node, gpu.maker) for gpu in shown.devices] == [
        (0, ONE, "0000:0c:00.0", "renderD128", "AMD"),
        (1, TWO, "0000:22:00.0", "renderD129", "AMD"),
    ]
    assert {gpu.name for gpu in shown.devices} == {"AMD Instinct MI300X"}
    assert {gpu.memory_bytes for gpu in shown.devices} == {192 << 30}
    assert (shown.versions, shown.runtimes, shown.notes) == ({"AMD": "6.14.14"}, {}, ())
    assert module.open == 0


def test_an_older_package_names_a_gpu_by_its_serial_number(tmp_path: Path) -> None:
    (tmp_path / "bus/pci/devices/0000:0c:00.0/drm/renderD130").mkdir(parents=True)
    (gpu,) = read_gpus(drivers_of(mi300x(), lacking=("gpu_enumeration_info",)), tmp_path).devices
    assert (gpu.uuid, gpu.render_node) == (ONE, "renderD130")


def test_partitions_stand_in_place_of_their_gpu_and_have_its_power() -> None:
    parts = [
        mi300x(f"GPU-{number}", f"0000:0C:00.{number}", render=128 + number, gpu_compute_partition="CPX")
        for number in range(8)
    ]
    drivers = drivers_of(*parts)
    devices = read_gpus(drivers).devices
    assert [(gpu.uuid, gpu.board) for gpu in devices[:2]] == [("GPU-0", "GPU-0"), ("GPU-1", "GPU-0")]
    assert {gpu.part for gpu in devices} == {1 / 8}
    assert {(gpu.name, gpu.pci_bus_id, gpu.profile) for gpu in devices} == {
        ("AMD Instinct MI300X CPX", "0000:0c:00.0", "CPX")
    }
    assert {values["power_w"] for _, values in GpuSource(drivers, devices).read()} == {702}
    assert "gpu_metrics_info" not in parts[1].asked
    settings = conditions_of(drivers).settings
    assert settings is not None
    assert {uuid: own.mig_mode for uuid, own in settings.gpus.items()} == {"GPU-0": True}


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ([mi300x("GPU-XX"), mi300x(TWO)], "no UUID of its own"),
        ([mi300x(ONE), mi300x(ONE, "0000:23:00.0"), mi300x(TWO)], "no UUID of its own"),
        ([mi300x(ONE, gpu_device_bdf=DRM_ERROR), mi300x(TWO)], "AMDSMI_STATUS_DRM_ERROR"),
    ],
)
def test_a_gpu_that_cannot_be_named_is_noted_and_the_others_stay(gpus: list[FakeAmdGpu], why: str) -> None:
    shown = read_gpus(drivers_of(*gpus))
    assert [gpu.uuid for gpu in shown.devices] == [TWO]
    assert all(why in note for note in shown.notes)
    assert len(shown.notes) == len(gpus) - 1


def test_samples() -> None:
    drivers = drivers_of(mi300x())
    source = GpuSource(drivers, read_gpus(drivers).devices)
    ((uuid, values),) = source.read()
    assert uuid == ONE
    assert values == {
        "memory_used_mib": 5 * 1024,
        "utilization_pct": 97,
        "temperature_c": 61,
        "power_w": 702,
        "energy_j": 1000,
        "sm_clock_mhz": 2097,
        "memory_clock_mhz": 1300,
        "pcie_generation": 5,
        "pcie_width": 16,
        "memory_temperature_c": 48,
        "sw_power_cap_s": 0,
        "sw_thermal_s": 0,
        "hw_thermal_s": 0,
        "read_errors": 0,
    }
    assert {*source.unsupported} == {*BOARD, *OWN} - values.keys()


def test_a_read_that_fails_is_counted() -> None:
    gpu = mi300x()
    drivers = drivers_of(gpu)
    source = GpuSource(drivers, read_gpus(drivers).devices)
    gpu.answers |= {"gpu_activity": DRM_ERROR, "gpu_metrics_info": metrics(temperature_mem="N/A")}
    ((_, values),) = source.read()
    assert values["read_errors"] == 2
    assert not {"utilization_pct", "memory_temperature_c"} & values.keys()


def test_an_older_gpu_has_one_clock_and_an_average_power() -> None:
    older = metrics(
        current_socket_power="N/A",
        average_socket_power=480,
        current_gfxclks=["N/A"] * 8,
        current_gfxclk=1700,
        accumulation_counter="N/A",
    )
    drivers = drivers_of(mi300x(gpu_metrics_info=older))
    ((_, values),) = GpuSource(drivers, read_gpus(drivers).devices).read()
    assert (values["power_w"], values["sm_clock_mhz"]) == (480, 1700)
    assert "sw_power_cap_s" not in values


def test_what_holds_the_clocks_down_is_a_share_of_time() -> None:
    clock = iter([100.0, 110.0, 111.0, 115.0, 117.0])
    held = HeldDown(lambda: next(clock))
    assert held.seconds(metrics()) == {"sw_power_cap": 0, "sw_thermal": 0, "hw_thermal": 0}
    loaded = metrics(
        accumulation_counter=2000, ppt_residency_acc=500 + 600, prochot_residency_acc=50, vr_thm_residency_acc=100
    )
    after = {"sw_power_cap": pytest.approx(6), "sw_thermal": 0, "hw_thermal": pytest.approx(1)}
    assert held.seconds(loaded) == after
    assert held.seconds(loaded) == after, "no period has passed"
    reset = metrics(accumulation_counter=10, ppt_residency_acc=0)
    assert held.seconds(reset) == after, "the counters began again"
    again = metrics(accumulation_counter=20, ppt_residency_acc=10)
    assert held.seconds(again) == {**after, "sw_power_cap": pytest.approx(8)}


def test_the_time_held_down_reaches_the_conditions_of_a_batch() -> None:
    gpu = mi300x()
    drivers = drivers_of(gpu)
    before = conditions_of(drivers)
    gpu.answers["gpu_metrics_info"] = metrics(accumulation_counter=1010, ppt_residency_acc=505)
    after = conditions_of(drivers)
    fraction = throttled_fraction(before, after)[ONE]
    assert fraction["sw_power_cap"] == pytest.approx(0.5, rel=0.5)
    assert fraction["sw_thermal"] == 0


def test_conditions() -> None:
    seen = conditions_of(drivers_of(mi300x(gpu_bad_page_info=[{"status": 0}, {"status": 1}])))
    state = seen.gpus[ONE]
    assert (state.power_w, state.energy_mj, state.temperature_c, state.foreign_pids) == (702, 1_000_000, 61, (11,))
    assert (state.ecc_corrected, state.ecc_uncorrected, state.remapped_rows) == (1, 0, (0, 1, 1, 0))
    assert state.links
    assert (state.links.nvlinks, state.links.pcie_replays) == (7, 3)
    assert seen.settings is not None
    assert seen.settings.driver == "6.14.14"
    own = seen.settings.gpus[ONE]
    assert (own.power_limit_w, own.max_sm_clock_mhz, own.max_memory_clock_mhz) == (750, 2100, 1300)
    assert (own.ecc, own.mig_mode, own.max_pcie_generation, own.max_pcie_width) == (True, False, 5, 16)


def test_every_value_that_is_not_told_is_excused() -> None:
    """As the rule on missing evidence asks."""
    bare, broken, usual = mi300x(), mi300x(gpu_metrics_info=DRM_ERROR, gpu_total_ecc_count=DRM_ERROR), mi300x()
    needed = {"gpu_device_bdf", "gpu_enumeration_info"}
    bare.answers |= dict.fromkeys(bare.answers.keys() - needed, NOT_SUPPORTED)
    for gpu in (bare, broken, usual):
        seen = conditions_of(drivers_of(gpu))
        state = seen.gpus[ONE]
        excused = {*seen.unsupported, *(name.removeprefix(f"{ONE} ") for name in seen.errors)}
        silent = {name for name in state.__struct_fields__ if getattr(state, name) is None}
        silent |= {reason for reason, value in state.throttled_ns.items() if value is None}
        assert silent <= excused


def test_a_driver_that_does_not_open_is_a_problem_and_no_error() -> None:
    class NoDriver(FakeAmdSmi):
        def amdsmi_init(self) -> None:
            raise DRIVER_NOT_LOADED

    drivers = Drivers(open_amd_smi(NoDriver()))
    assert drivers.problems["AMD"].startswith("AMD SMI cannot be used: ")
    assert "DRIVER_NOT_LOADED" in drivers.problems["AMD"]
    assert read_gpus(drivers).devices == ()


def test_without_the_kernel_driver_the_library_is_not_imported(tmp_path: Path) -> None:
    session = open_session(root=tmp_path)
    assert (session.problem, session.handles()) == (None, ())
    assert read_gpus(Drivers(AmdSmi(session))).devices == ()


def test_a_package_without_its_library_is_a_problem_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "amdsmi.py").write_text("print('libamd_smi.so: cannot open shared object file')\n{}['libamd_smi.so']\n")
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    problem = open_session(root=tmp_path).problem
    assert problem is not None
    assert problem.startswith("AMD SMI cannot be used: libamd_smi.so: cannot open shared object file")
    assert capsys.readouterr().out == ""


def test_without_the_package_a_problem_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert "pip install /opt/rocm/share/amd_smi" in (open_session(root=tmp_path).problem or "")


def test_gpus_of_both_vendors_each_have_their_own_driver() -> None:
    nvml = open_nvml(FakeNvml(FakeGpu("GPU-nv", "00000000:03:00.0", PowerUsage=100_000)))
    drivers = Drivers(nvml, open_amd_smi(FakeAmdSmi(mi300x())))
    shown = read_gpus(drivers)
    assert [(gpu.uuid, gpu.maker) for gpu in shown.devices] == [("GPU-nv", "NVIDIA"), (ONE, "AMD")]
    assert shown.versions == {"NVIDIA": "580.159.03", "AMD": "6.14.14"}
    read = dict(GpuSource(drivers, shown.devices).read())
    assert {uuid: values["power_w"] for uuid, values in read.items()} == {"GPU-nv": 100, ONE: 702}
    seen = conditions_of(drivers)
    assert seen.settings is not None
    assert seen.settings.driver == "580.159.03, 6.14.14"


def test_the_stand_in_has_the_interface_of_the_package() -> None:
    """Read, not imported: the package needs its library."""
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or spec.origin is None:
        pytest.skip("amdsmi is not installed")
    tree = ast.parse((Path(spec.origin).parent / "amdsmi_interface.py").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    asked = {question if isinstance(question, str) else question[0] for question in mi300x().answers}
    assert {f"amdsmi_get_{question}" for question in asked} | {"amdsmi_init", "amdsmi_shut_down"} <= functions.keys()
    for question, answer in mi300x().answers.items():
        name = question if isinstance(question, str) else question[0]
        words = {node.value for node in ast.walk(functions[f"amdsmi_get_{name}"]) if isinstance(node, ast.Constant)}
        assert _keys(answer) <= words, name
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for enum in (AmdSmiClkType, AmdSmiMemoryType):
        members = {node.id for node in ast.walk(classes[enum.__name__]) if isinstance(node, ast.Name)}
        assert {one.name for one in enum} <= members


def _keys(answer: Any) -> set[str]:
    """The keys of a dictionary, and of those in it."""
    if isinstance(answer, list):
        return {key for one in answer for key in _keys(one)}
    if not isinstance(answer, dict):
        return set()
    return {*answer, *(key for one in answer.values() for key in _keys(one))}


def test_the_package_itself_without_its_library_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("amdsmi") is None:
        pytest.skip("amdsmi is not installed")
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
        monkeypatch.delitem(sys.modules, name)
    session = open_session(root=tmp_path)
    if session.problem is None:
        pytest.skip("this machine has AMD SMI")
    assert session.problem.startswith("AMD SMI cannot be used: ")
    assert session.handles() == ()
    assert capsys.readouterr().out == ""

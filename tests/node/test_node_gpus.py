"""GPUs as NVML and PCI show them, and the choice of them by name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import LOST, NOT_FOUND, FakeGpu, FakeNvml

from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import Profile
from milabench_ng.node.drivers.nvml.driver import open_nvml
from milabench_ng.node.drivers.opening import Drivers, Gpus, read_gpus
from milabench_ng.node.gpus import select
from milabench_ng.node.pci_gpus import pci_gpus
from milabench_ng.run.planning.devices import choose_devices
from milabench_ng.run.planning.request import RunRequest


def pci_device(sysfs: Path, address: str, vendor: str, kind: str, node: str, driver: str | None = None) -> None:
    device = sysfs / "bus/pci/devices" / address
    device.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("class", kind), ("device", "0x2335"), ("numa_node", node)):
        (device / name).write_text(text + "\n")
    if driver:
        (sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(Path("../../drivers") / driver)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    pci_device(tmp_path, "0000:17:00.0", "0x10de", "0x030200", "1", "nvidia")
    pci_device(tmp_path, "0000:03:00.0", "0x10de", "0x030200", "-1", "vfio-pci")
    pci_device(tmp_path, "0000:81:00.0", "0x1002", "0x120000", "0")
    pci_device(tmp_path, "0000:02:00.0", "0x1a03", "0x030000", "0", "ast")
    pci_device(tmp_path, "0000:17:00.1", "0x10de", "0x040300", "1")
    return tmp_path


def two_gpus() -> FakeNvml:
    """NVML's order is the other way round than PCI's."""
    return FakeNvml(FakeGpu("GPU-bb22", "00000000:17:00.0"), FakeGpu("GPU-aa11", "00000000:03:00.0"))


def test_nvml_on_this_machine_is_there_or_says_why_not() -> None:
    with Drivers(open_nvml()) as drivers:
        problems, shown = drivers.problems, read_gpus(drivers)
    if problems:
        assert problems["NVIDIA"].startswith("NVML cannot be used: ")
        assert shown.devices == ()
    else:
        assert shown.versions["NVIDIA"]


def test_a_driver_that_is_not_loaded_is_a_problem_and_no_error() -> None:
    class NoDriver(FakeNvml):
        def nvmlInit(self) -> None:  # noqa: N802
            raise self.NVMLError(9, "Driver Not Loaded")

    problem = "NVML cannot be used: Driver Not Loaded. If this node has NVIDIA GPUs, run nvidia-smi to check the driver"
    drivers = Drivers(open_nvml(NoDriver()))
    assert (drivers.problems, read_gpus(drivers)) == ({"NVIDIA": problem}, Gpus())


def test_gpus_are_in_pci_order_and_know_their_numa_node(sysfs: Path) -> None:
    module = two_gpus()
    with Drivers(open_nvml(module)) as nvml:
        shown = read_gpus(nvml, sysfs)
    assert [(gpu.index, gpu.uuid, gpu.pci_bus_id, gpu.numa_node) for gpu in shown.devices] == [
        (0, "GPU-aa11", "0000:03:00.0", None),
        (1, "GPU-bb22", "0000:17:00.0", 1),
    ]
    assert (shown.versions, shown.runtimes) == ({"NVIDIA": "580.159.03"}, {"NVIDIA": "13.0"})
    assert shown.devices[0].memory_bytes == 150 << 30
    assert module.open == 0


def test_mig_instances_stand_in_place_of_their_gpu(sysfs: Path) -> None:
    cut, empty = (
        FakeGpu("GPU-cut", "00000000:03:00.0", MigMode=[1, 1]),
        FakeGpu("GPU-mt", "00000000:17:00.0", MigMode=[1, 1]),
    )
    cut.instances = [FakeGpu("MIG-1", ""), NOT_FOUND, FakeGpu("MIG-2", "")]
    shown = read_gpus(Drivers(open_nvml(FakeNvml(cut, empty))), sysfs)
    assert [(gpu.index, gpu.uuid, gpu.mig, gpu.parent, gpu.board, gpu.pci_bus_id) for gpu in shown.devices] == [
        (0, "MIG-1", True, "GPU-cut", "GPU-cut", "0000:03:00.0"),
        (1, "MIG-2", True, "GPU-cut", "GPU-cut", "0000:03:00.0"),
    ]
    assert shown.notes == ("GPU-mt (0000:17:00.0): MIG mode is on and has no instances: not used",)


def instance(uuid: str, profile: str, compute: int, whole: int, mib: int) -> FakeGpu:
    """As the driver of an A100 with 40 GB shows it."""
    return FakeGpu(
        uuid,
        "",
        Name=f"NVIDIA A100-SXM4-40GB{profile}",
        MemoryInfo=SimpleNamespace(total=mib << 20, used=0),
        Attributes=SimpleNamespace(
            multiprocessorCount=14 * compute,
            gpuInstanceSliceCount=whole,
            computeInstanceSliceCount=compute,
            memorySizeMB=mib,
        ),
    )


def test_unequal_instances_tell_their_profile_and_their_part_of_the_gpu(sysfs: Path) -> None:
    cut = FakeGpu("GPU-cut", "00000000:03:00.0", MigMode=[1, 1])
    cut.instances = [
        instance("MIG-a", " MIG 4g.20gb", 4, 4, 19968),
        instance("MIG-b", " MIG 1c.2g.10gb", 1, 2, 9856),
        instance("MIG-c", "", 1, 1, 4864),
        *[NOT_FOUND] * 4,
    ]
    whole = FakeGpu("GPU-whole", "00000000:17:00.0", MigMode=[0, 0])
    shown = read_gpus(Drivers(open_nvml(FakeNvml(cut, whole))), sysfs).devices
    assert [(gpu.profile, gpu.slices, gpu.part) for gpu in shown] == [
        ("4g.20gb", (4, 7), 4 / 7),
        ("1c.2g.10gb", (1, 7), 1 / 7),
        ("1g.5gb", (1, 7), 1 / 7),
        (None, None, None),
    ]
    assert shown[2].name == "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "unequal instances are different models"
    request = RunRequest(profile=Profile("s", {}, "", "s.json"), dataroot=Path("/data"), outdir=Path("/results"))
    chosen = choose_devices(shown, request, 16, {}).devices
    assert [(one.kind, one.known_part) for one in chosen] == [
        ("mig", 4 / 7),
        ("mig", 1 / 7),
        ("mig", 1 / 7),
        ("gpu", 1.0),
    ]
    asked = {question for gpu in (cut, whole, *cut.instances[:3]) for question in gpu.asked}  # type: ignore[union-attr]
    assert not [question for question in asked if question.startswith(("Create", "Destroy", "Set"))]


def test_a_lost_gpu_is_noted_and_the_other_one_stays(sysfs: Path) -> None:
    lost = FakeGpu("GPU-lost", "00000000:03:00.0", UUID=LOST)
    shown = read_gpus(Drivers(open_nvml(FakeNvml(lost, FakeGpu("GPU-ok", "00000000:17:00.0")))), sysfs)
    assert [gpu.uuid for gpu in shown.devices] == ["GPU-ok"]
    assert shown.notes == ("a GPU does not answer (GPU is lost): not used",)


def test_pci_shows_gpus_that_nvml_does_not(sysfs: Path) -> None:
    assert [(gpu.pci_bus_id, gpu.vendor, gpu.driver, gpu.numa_node) for gpu in pci_gpus(sysfs)] == [
        ("0000:03:00.0", "NVIDIA", "vfio-pci", None),
        ("0000:17:00.0", "NVIDIA", "nvidia", 1),
        ("0000:81:00.0", "AMD", None, 0),
    ]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ([], [0, 1]),
        (["1"], [1]),
        (["GPU-bb22", "0"], [0, 1]),
        (["gpu-b"], [1]),
        (["0000:03:00.0"], [0]),
    ],
)
def test_select(sysfs: Path, wanted: list[str], chosen: list[int]) -> None:
    devices = read_gpus(Drivers(open_nvml(two_gpus())), sysfs).devices
    assert [gpu.index for gpu in select(devices, wanted)] == chosen


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["2"], r"'2' is not on this node. Use an index or a UUID of: 0 = GPU-aa11 .*; 1 = GPU-bb22"),
        (["GPU-"], r"'GPU-' fits 2 devices"),
        (["1", "GPU-bb22"], r"device 1 is named more than once"),
    ],
)
def test_select_refuses(sysfs: Path, wanted: list[str], message: str) -> None:
    devices = read_gpus(Drivers(open_nvml(two_gpus())), sysfs).devices
    with pytest.raises(InputError, match=message):
        select(devices, wanted)


def test_select_says_that_there_is_no_gpu() -> None:
    with pytest.raises(InputError, match="no GPU at all"):
        select((), ["0"])

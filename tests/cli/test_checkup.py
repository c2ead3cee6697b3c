"""What ``mnb doctor`` concludes from what it sees."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec
import pytest

from milabench_ng.cli.doctor import gpu_section
from milabench_ng.node.drivers.opening import built_for
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.inventory import Inventory, read_inventory
from milabench_ng.node.pci_gpus import PciGpu
from milabench_ng.node.storage import read_storage
from milabench_ng.run.planning.readiness import Remains, data_reasons, find_remains, gpu_reasons

GPU = Gpu(index=0, uuid="GPU-a", name="H200", pci_bus_id="0000:17:00.0", numa_node=0, memory_bytes=1 << 37)
SHOWN = PciGpu(pci_bus_id="0000:17:00.0", vendor="NVIDIA", device_id="10de:2335", driver="nvidia", numa_node=0)
LOST = PciGpu(pci_bus_id="0000:65:00.0", vendor="NVIDIA", device_id="10de:2335", driver=None, numa_node=1)
BUILT_IN = PciGpu(pci_bus_id="0000:00:02.0", vendor="Intel", device_id="8086:4680", driver="i915", numa_node=None)


@pytest.fixture(scope="module")
def node() -> Inventory:
    """This node, with one good GPU in place of those that it has."""
    return msgspec.structs.replace(
        read_inventory(),
        gpus=(GPU,),
        pci_gpus=(SHOWN,),
        gpu_notes=(),
        nvidia_driver="570.1",
        cuda_driver="12.8",
        versions={"torch": "2.11.0+cu126", "cuda": "12.6"},
    )


def test_mig_instances_are_listed_with_profile_memory_and_part() -> None:
    cut = [
        msgspec.structs.replace(
            GPU,
            index=index,
            uuid=f"MIG-{index}",
            name=f"H200 MIG {slices}g.71gb",
            memory_bytes=71 << 30,
            mig=True,
            parent="GPU-a",
            slices=(slices, 7),
        )
        for index, slices in enumerate((3, 4))
    ]
    made = gpu_section(cut, {"MIG-0"})
    assert [heading.header for heading in made.headings] == [
        *("device", "name", "UUID", "PCI", "NUMA node", "memory (GiB)", "MIG profile", "compute", "of GPU", "chosen")
    ]
    assert made.rows == (
        (0, "H200 MIG 3g.71gb", "MIG-0", "0000:17:00.0", 0, 71.0, "3g.71gb", "3/7", "GPU-a", "yes"),
        (1, "H200 MIG 4g.71gb", "MIG-1", "0000:17:00.0", 0, 71.0, "4g.71gb", "4/7", "GPU-a", "no"),
    )
    (whole,) = gpu_section([GPU], {"GPU-a"}).rows
    assert whole == (0, "H200", "GPU-a", "0000:17:00.0", 0, 128.0, "yes")


def reasons(node: Inventory, **changed: object) -> list[str]:
    return list(gpu_reasons(msgspec.structs.replace(node, **changed)))


def test_a_good_gpu_is_no_reason(node: Inventory) -> None:
    assert reasons(node) == []
    assert reasons(node, pci_gpus=(SHOWN, BUILT_IN)) == []
    assert reasons(node, versions={"torch": "2.11.0", "cuda": "12.9"}) == []  # minor versions are compatible


def test_a_gpu_that_only_the_bus_shows_is_one(node: Inventory) -> None:
    found = reasons(node, pci_gpus=(SHOWN, LOST), gpu_notes=("a GPU does not answer",))
    assert len(found) == 2
    assert "0000:65:00.0" in found[0]
    assert "0000:17:00.0" not in found[0]
    assert found[1] == "a GPU does not answer"


def test_gpus_of_other_makers_are_one_where_there_is_nothing_else(node: Inventory) -> None:
    (found,) = reasons(node, gpus=(), pci_gpus=(BUILT_IN,), nvidia_driver=None, gpu_notes=("NVML cannot be used",))
    assert "Intel" in found


def test_an_amd_gpu_is_one_if_nothing_else_works(node: Inventory) -> None:
    display = PciGpu(pci_bus_id="0000:02:00.0", vendor="AMD", device_id="1002:164e", driver="amdgpu", numa_node=None)
    rocm = {"torch": "2.11.0+rocm7.0"}
    assert reasons(node, pci_gpus=(SHOWN, display)) == []
    assert reasons(node, pci_gpus=(SHOWN, display), versions={"torch": "2.11.0+cpu", "cuda": "12.6"}) == []
    (lost,) = reasons(node, gpus=(), pci_gpus=(display,), versions=rocm, nvidia_driver=None)
    assert "Load the kernel driver amdgpu" in lost
    (other,) = reasons(node, gpus=(), pci_gpus=(display,), nvidia_driver=None)
    assert "torch 2.11.0+cu126 is built for GPUs of NVIDIA" in other
    amd = msgspec.structs.replace(GPU, vendor="AMD")
    assert reasons(node, gpus=(amd,), versions=rocm, nvidia_driver=None, amd_driver="6.14") == []


@pytest.mark.parametrize(
    ("torch", "vendor"),
    [("2.11.0", "NVIDIA"), ("2.11.0+cu130", "NVIDIA"), ("2.11.0+rocm7.0", "AMD"), ("2.11.0+cpu", None), (None, None)],
)
def test_torch_is_built_for_the_gpus_of_one_vendor(torch: str | None, vendor: str | None) -> None:
    assert built_for(torch) == vendor


def test_a_torch_that_cannot_use_the_gpus_is_one(node: Inventory) -> None:
    (too_new,) = reasons(node, versions={"torch": "2.15.0", "cuda": "13.2"})
    assert "13.2" in too_new
    assert "12.8" in too_new
    (without,) = reasons(node, versions={"torch": "2.15.0+cpu"})
    assert "without CUDA" in without


@pytest.mark.parametrize("place", ["/proc/1", "/proc/1/data", "/sys"])
def test_a_data_root_where_nothing_can_be_written_is_one(place: str) -> None:
    (reason,) = data_reasons(read_storage(Path(place)))
    assert reason.startswith(f"data root {place}: not writable")
    assert reason.endswith("Name a folder with --dataroot")


def test_a_data_root_that_is_yet_to_be_made_is_none(tmp_path: Path) -> None:
    assert [*data_reasons(read_storage(tmp_path / "data" / "sets"))] == []


@pytest.mark.parametrize("filled", [True, False])
def test_a_folder_that_cannot_be_written_is_one_unless_it_holds_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filled: bool
) -> None:
    if filled:
        (tmp_path / "mnist").mkdir()
    monkeypatch.setattr(os, "access", lambda _, mode: mode == os.R_OK)  # root may always write
    assert bool([*data_reasons(read_storage(tmp_path))]) is not filled


def test_what_dead_runs_left_is_told_from_what_living_ones_hold(tmp_path: Path) -> None:
    parent, data = tmp_path / "cgroup", tmp_path / "data"
    for folder in (
        parent / "mnb/dead",
        parent / "mnb/living",
        data / ".mnb-mnist-7",
        data / "scale-0.1/.mnb-imagenet-8",
        data / "mnb-scratch-dead",
    ):
        folder.mkdir(parents=True)
    held = [parent / "mnb/living", data / "scale-0.1/.mnb-imagenet.lock"]
    held[1].touch()
    locks = [os.open(path, os.O_RDONLY) for path in held]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    found = [one for one in find_remains([str(parent)], data) if one.path.startswith(str(tmp_path))]
    for lock in locks:
        os.close(lock)
    assert found == [
        Remains("groups", str(parent / "mnb/dead"), False),
        Remains("groups", str(parent / "mnb/living"), True),
        Remains("scratch", str(data / "mnb-scratch-dead"), False),
        Remains("data", str(data / ".mnb-mnist-7"), False),
        Remains("data", str(data / "scale-0.1/.mnb-imagenet-8"), True),
    ]
    assert [path.exists() for path in (parent / "mnb/dead", data / ".mnb-mnist-7")] == [True, True]

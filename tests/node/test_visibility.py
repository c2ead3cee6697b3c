"""The variables and device files through which a program sees its GPUs."""

from __future__ import annotations

import msgspec
import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Device, Vendor
from milabench_ng.node.drivers.visibility import asked_for, device_files, hidden, visible
from milabench_ng.node.gpus import Gpu


def gpu(index: int, vendor: Vendor, render_node: str = "") -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index:016x}",
        name="a GPU",
        pci_bus_id="",
        numa_node=None,
        memory_bytes=None,
        vendor=vendor,
        render_node=render_node or msgspec.UNSET,
    )


def device_of(gpu: Gpu) -> Device:
    return Device(index=gpu.index, kind="gpu", uuid=gpu.uuid, name=gpu.name, vendor=gpu.vendor)


NVIDIA = Device(index=0, kind="gpu", uuid="GPU-a", name="NVIDIA H200")
CPU = Device(index=0, kind="cpu")
GPUS = (gpu(0, "AMD", "renderD128"), gpu(1, "AMD", "renderD136"))
FIRST, SECOND = map(device_of, GPUS)


def test_a_gpu_of_nvidia_is_named_by_its_uuid() -> None:
    assert visible((NVIDIA,)) == {"CUDA_VISIBLE_DEVICES": "GPU-a"}
    assert visible((CPU,)) == {"CUDA_VISIBLE_DEVICES": ""}
    assert hidden((NVIDIA,)) == {"CUDA_VISIBLE_DEVICES": ""}


def test_rocr_names_gpus_of_amd_and_hip_counts_them_anew() -> None:
    assert visible((SECOND, FIRST)) == {
        "CUDA_VISIBLE_DEVICES": "",
        "ROCR_VISIBLE_DEVICES": "GPU-0000000000000001,GPU-0000000000000000",
        "HIP_VISIBLE_DEVICES": "0,1",
    }
    assert visible((SECOND,))["HIP_VISIBLE_DEVICES"] == "0"


def test_a_cpu_partition_sees_no_gpu_of_its_node() -> None:
    assert visible((CPU,), GPUS) == {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1"}
    assert hidden((FIRST, SECOND)) == {"HIP_VISIBLE_DEVICES": "-1"}


def test_a_tenant_has_the_device_files_of_its_gpus_and_no_other() -> None:
    assert device_files((SECOND,), GPUS) == ("/dev/dri/renderD136",)
    assert device_files((FIRST, SECOND), GPUS) == ("/dev/dri/renderD128", "/dev/dri/renderD136")
    assert device_files((NVIDIA,), GPUS) == ()
    assert device_files((CPU,), GPUS) == ()


@pytest.mark.parametrize(
    ("environ", "vendors", "expected"),
    [
        ({}, (), ("CUDA_VISIBLE_DEVICES", None)),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ("NVIDIA",), ("CUDA_VISIBLE_DEVICES", "1")),
        ({"ROCR_VISIBLE_DEVICES": "1"}, ("NVIDIA",), ("CUDA_VISIBLE_DEVICES", None)),
        ({"HIP_VISIBLE_DEVICES": "1"}, ("AMD",), ("HIP_VISIBLE_DEVICES", "1")),
        ({"HIP_VISIBLE_DEVICES": "2", "ROCR_VISIBLE_DEVICES": "2"}, ("AMD",), ("ROCR_VISIBLE_DEVICES", "2")),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ("AMD",), ("CUDA_VISIBLE_DEVICES", "0")),
    ],
)
def test_the_caller_chooses_by_the_variables_of_the_vendor(
    environ: dict[str, str], vendors: tuple[Vendor, ...], expected: tuple[str, str | None]
) -> None:
    assert asked_for(environ, [gpu(0, vendor) for vendor in vendors]) == expected


def test_variables_that_disagree_are_refused() -> None:
    with pytest.raises(InputError, match="ROCR_VISIBLE_DEVICES=0,1 and HIP_VISIBLE_DEVICES=1 choose different GPUs"):
        asked_for({"HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "0,1"}, GPUS)

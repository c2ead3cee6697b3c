"""Which devices a run works on."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import Profile
from milabench_ng.node.gpus import Gpu
from milabench_ng.run.planning.devices import Chosen, choose_devices
from milabench_ng.run.planning.request import RunRequest

GPUS = tuple(
    Gpu(index=index, uuid=f"GPU-a{index}", name="H200", pci_bus_id=f"0000:0{index}:00.0", numa_node=0, memory_bytes=1)
    for index in range(3)
)


def chosen(
    environ: dict[str, str],
    gpus: tuple[Gpu, ...] = GPUS,
    tenants: int | None = None,
    named: str = "",
    resume: bool = False,
) -> Chosen:
    """On a node of four CPUs; ``named``: by ``--gpus``."""
    request = RunRequest(
        profile=Profile("s", {}, "", ""),
        dataroot=Path(),
        outdir=Path(),
        tenants=tenants,
        gpus=tuple(filter(None, named.split(","))),
        resume=resume,
    )
    return choose_devices(gpus, request, 4, environ)


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2,0", [0, 2]),
        ("GPU-a1, 2", [1, 2]),
        ("0,-1,2", [0]),
        ("1,", [1]),
        ("0,NoDevFiles,1", [0]),
    ],
)
def test_cuda_visible_devices_chooses_as_cuda_reads_it(visible: str | None, indices: list[int]) -> None:
    found = chosen({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert ([device.index for device in found.devices], found.notes) == (indices, ())
    assert {device.kind for device in found.devices} == {"gpu"}


@pytest.mark.parametrize(
    ("visible", "why"),
    [
        ("", "is empty"),
        (" ", "is empty"),
        ("-1", "is '-1'"),
        ("NoDevFiles", "is 'NoDevFiles'"),
        (",0", "is ',0'"),
    ],
)
def test_what_hides_every_gpu_selects_none_and_says_so(visible: str, why: str) -> None:
    found = chosen({"CUDA_VISIBLE_DEVICES": visible})
    assert [device.kind for device in found.devices] == ["cpu", "cpu"]
    (note,) = found.notes
    assert note.startswith(
        f"3 GPUs found but none selected, because CUDA_VISIBLE_DEVICES {why}. The tenants are CPU part"
    )
    assert note.endswith("name some with --gpus")


def test_gpus_that_are_named_are_used_whatever_is_visible() -> None:
    found = chosen({"CUDA_VISIBLE_DEVICES": ""}, named="1")
    assert ([device.index for device in found.devices], found.notes) == ([1], ())


def test_a_node_without_gpus_has_none_to_hide() -> None:
    assert chosen({"CUDA_VISIBLE_DEVICES": ""}, gpus=()).notes == ()


@pytest.mark.parametrize(
    ("environ", "named", "why"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "", "CUDA_VISIBLE_DEVICES 0,1: this node has no GPU"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "0", "--gpus 0: this node has no GPU"),
    ],
)
def test_gpus_that_are_named_on_a_node_without_any_are_refused(environ: dict[str, str], named: str, why: str) -> None:
    """The driver of a node may be gone: its CPUs are no answer to who named its GPUs."""
    with pytest.raises(InputError, match=why):
        chosen(environ, gpus=(), named=named)


@pytest.mark.parametrize(
    ("gpus", "tenants", "named", "why"),
    [
        ((), None, "0", "--gpus 0: this node has no GPU"),
        (GPUS, None, "7", "--gpus: '7' is not on this node"),
        (GPUS, None, "0,GPU-a0", "--gpus 0,GPU-a0: device 0 is named more than once"),
        (GPUS, 4, "", "--tenants 4: there are only 3 GPUs"),
        ((), 5, "", "--tenants 5: this node has only 4 CPUs"),
    ],
)
def test_a_resumed_run_is_told_what_it_began_with_and_no_option(
    gpus: tuple[Gpu, ...], tenants: int | None, named: str, why: str
) -> None:
    with pytest.raises(InputError, match=f"cannot resume: the run began with {why}") as refused:
        chosen({}, gpus, tenants, named, resume=True)
    assert str(refused.value).endswith(". Resume it on a node like its first, or start a new run")


def test_hidden_gpus_are_no_tenants() -> None:
    assert len(chosen({"CUDA_VISIBLE_DEVICES": ""}, tenants=4).devices) == 4
    with pytest.raises(InputError, match="--tenants 5: this node has only 4 CPUs"):
        chosen({"CUDA_VISIBLE_DEVICES": ""}, tenants=5)


def test_a_gpu_that_is_not_there_is_named_with_the_variable() -> None:
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES: '7' is not on this node"):
        chosen({"CUDA_VISIBLE_DEVICES": "7"})

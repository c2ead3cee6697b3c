"""The memory that an automatic batch size may be made for, where tenants share a GPU."""

from __future__ import annotations

import msgspec
import pytest

from milabench_ng.model.plan import Device
from milabench_ng.model.units import GIB
from milabench_ng.node.gpus import Gpu
from milabench_ng.records.isolation import Share
from milabench_ng.run.outcome.run_context import own_memory

GPU = Gpu(index=0, uuid="GPU-0", name="", pci_bus_id="0000:17:00.0", numa_node=0, memory_bytes=80 * GIB)
DEVICE = Device(index=0, kind="gpu", uuid="GPU-0")


@pytest.mark.parametrize(
    ("device", "part", "expected"),
    [(DEVICE, msgspec.UNSET, 80 * GIB), (DEVICE, 0.25, 20 * GIB), (None, 0.25, 4 * GIB)],
)
def test_it_is_the_part_of_the_device_or_the_share_of_the_ram(
    device: Device | None, part: float | msgspec.UnsetType, expected: int
) -> None:
    share = Share(
        cpus=(0,),
        mems=(0,),
        memory_bytes=4 * GIB,
        memory_nominal_bytes=4 * GIB,
        pids=1,
        cores=1,
        nodes=(0,),
        device_part=part,
    )
    assert own_memory(share, device, (GPU,)) == expected

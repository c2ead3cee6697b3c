"""GPUs that are lost or have errors, told from NVML's answers: a stand-in for NVML gives them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fake_nvml import LOST, NOT_SUPPORTED, FakeGpu, FakeNvml, NVMLError

from milabench_ng.node.conditions import read_conditions
from milabench_ng.node.drivers.nvml.driver import Nvml, open_nvml
from milabench_ng.node.drivers.nvml.session import Session
from milabench_ng.node.drivers.opening import Drivers, read_gpus
from milabench_ng.node.faults import device_fault

GPU = "GPU-1"


class EventfulNvml(FakeNvml):
    """Has XID events to tell."""

    def __init__(self, *gpus: FakeGpu, events: list[tuple[FakeGpu, int]]) -> None:
        super().__init__(*gpus)
        self.events = events

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, _gpu: FakeGpu, kinds: int, _events: object) -> None:  # noqa: N802
        assert kinds == 8

    def nvmlEventSetWait_v2(self, _events: object, timeout_ms: int) -> Any:  # noqa: N802
        assert timeout_ms == 0
        if not self.events:
            raise NVMLError(10, "Timeout")
        gpu, number = self.events.pop(0)
        return SimpleNamespace(device=gpu, eventType=8, eventData=number)

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # noqa: N802
        return gpu.uuid


def gpu(**answers: Any) -> FakeGpu:
    return FakeGpu(GPU, "00000000:17:00.0", **answers)


def test_xid_events_come_once_and_by_gpu() -> None:
    one, other = gpu(), FakeGpu("GPU-2", "00000000:18:00.0")
    module = EventfulNvml(one, other, events=[(one, 31), (other, 79), (one, 94)])
    nvml = open_nvml(module)
    xids = nvml.faults(("GPU-1", "GPU-2"))
    assert xids.drain() == {GPU: (31, 94), "GPU-2": (79,)}
    assert xids.drain() == {}


def test_without_nvml_or_events_there_are_none() -> None:
    assert Nvml(Session(None, "no NVML")).faults(()).drain() == {}
    module = EventfulNvml(gpu(), events=[])
    module.nvmlEventSetCreate = lambda: (_ for _ in ()).throw(NOT_SUPPORTED)  # type: ignore[method-assign]
    assert open_nvml(module).faults((GPU,)).drain() == {}


@pytest.mark.parametrize(
    ("after", "xids", "cause", "words"),
    [
        ({}, (), None, ""),
        ({}, (13, 31, 43, 45), None, ""),
        ({}, (79,), "device_lost", "XID 79: the GPU has fallen off the bus"),
        ({}, (94, 79), "device_lost", "XID 79"),
        ({}, (48,), "device_error", "XID 48: uncorrectable ECC error"),
        ({("TotalEccErrors", 1): 3}, (), "device_error", "2 uncorrectable ECC errors"),
        ({"PowerUsage": LOST}, (), "device_lost", "GPU is lost"),
    ],
)
def test_what_became_of_a_gpu(after: dict[Any, Any], xids: tuple[int, ...], cause: str | None, words: str) -> None:
    fake = gpu(PowerUsage=100_000)
    fake.answers[("TotalEccErrors", 1)] = 1
    nvml = Drivers(open_nvml(FakeNvml(fake)))
    devices = read_gpus(nvml).devices
    first = read_conditions(nvml, devices)
    assert first.gpus[GPU].ecc_uncorrected == 1
    fake.answers |= after
    last = read_conditions(nvml, devices)
    fault = device_fault(GPU, first, last, {GPU: xids})
    assert (fault and fault.cause) == cause
    assert words in (fault.detail if fault else "")
    assert device_fault("GPU-other", first, msgspec.structs.replace(last), {GPU: xids}) is None

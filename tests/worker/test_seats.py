"""What a worker does with its seat: the part of a device's memory that torch may use."""

from __future__ import annotations

import msgspec
import pytest
import torch

from milabench_ng.model.plan import Device
from milabench_ng.worker.rank import open_device
from milabench_ng.worker.requests import RankSlot

SEAT = RankSlot(slot="0", device=Device(index=0, kind="gpu", uuid="GPU-0"), entry={}, threads=1)


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, torch.device]]:
    """The fractions that torch was told, before anything was allocated on the device."""
    told: list[tuple[float, torch.device]] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, device: told.append((part, device)))
    monkeypatch.setattr(torch, "zeros", lambda *_, device: told.append((0.0, device)))
    return told


def test_a_tenant_of_a_shared_gpu_is_bounded_before_it_allocates(bounded: list[tuple[float, torch.device]]) -> None:
    device = open_device(msgspec.structs.replace(SEAT, memory_part=0.25))
    assert bounded == [(0.25, device), (0.0, device)]


def test_a_tenant_of_its_own_gpu_is_not(bounded: list[tuple[float, torch.device]]) -> None:
    assert bounded == [(0.0, open_device(SEAT))]


def test_on_the_cpu_there_is_nothing_to_bound(bounded: list[tuple[float, torch.device]]) -> None:
    seat = msgspec.structs.replace(SEAT, device=Device(index=0, kind="cpu"), memory_part=0.5)
    assert open_device(seat) == torch.device("cpu")
    assert bounded == []

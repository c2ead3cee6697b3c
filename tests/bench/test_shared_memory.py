"""Shared memory for loader processes: too little is an error before they start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from milabench_ng.bench.shared_memory import IN_HAND, PLACE, require, tensor_bytes
from milabench_ng.model.errors import InputError


def test_what_fits_just_fits() -> None:
    state = os.statvfs(PLACE)
    whole, free = state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize
    batches = 6
    most = free // (batches + IN_HAND)
    require(1, most // 2, batches, tenants=1)
    with pytest.raises(InputError, match=r"1 x .* are needed \(6 \+ 2 batches of"):
        require(1, 2 * most, batches, tenants=1)
    tenants = whole // (most // 2 * (batches + IN_HAND)) + 1
    with pytest.raises(InputError, match=f"{tenants} x .* are free"):
        require(1, most // 2, batches, tenants)


def test_a_node_without_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"need shared memory, and .*/shm cannot be used .No such file or directory"):
        require(1, 1, 1, 1, tmp_path / "shm")


def test_bytes_of_a_sample() -> None:
    picture = torch.zeros(3, 4, 5)
    assert tensor_bytes(picture) == 240
    assert tensor_bytes((picture, 7)) == 248
    assert tensor_bytes({"image": picture, "boxes": [torch.zeros(2, dtype=torch.int64), 1.5]}) == 240 + 16 + 8

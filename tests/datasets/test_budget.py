"""Readers that keep to a share of bandwidth: real files, real loader processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from milabench_ng.datasets.budget import BURST_S, Budget, Budgeted
from milabench_ng.model.units import KIB, MIB


class Files(Dataset[torch.Tensor]):
    """Files that are read, or mapped, whole."""

    def __init__(self, folder: Path, count: int, size: int) -> None:
        self.paths = [folder / str(number) for number in range(count)]
        for path in self.paths:
            path.write_bytes(os.urandom(size))

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(len(self.paths[index].read_bytes()))

    def __len__(self) -> int:
        return len(self.paths)


def test_all_loader_processes_together_keep_to_the_share(tmp_path: Path) -> None:
    files = Files(tmp_path, 64, 128 * KIB)
    budget = Budget(8 * MIB)
    loader = DataLoader(Budgeted(files, budget), batch_size=4, num_workers=2, multiprocessing_context="fork")
    began = time.monotonic()
    read = sum(int(sizes.sum()) for sizes in loader)
    seconds = time.monotonic() - began
    assert read == 8 * MIB
    spent = budget.spent()
    assert read <= spent.bytes <= 1.01 * read
    assert spent.bytes / spent.seconds <= 1.1 * 8 * MIB
    assert seconds >= 0.9, "a second's worth of bytes must take a second"


def test_what_was_not_used_is_forgotten_but_for_a_moment() -> None:
    budget = Budget(1000)
    budget.take(1)
    time.sleep(3 * BURST_S)
    began = time.monotonic()
    budget.take(300)  # a tenth of a second's worth is there
    assert time.monotonic() - began >= 0.2 * 0.95


def test_nothing_read_is_nothing_spent() -> None:
    budget = Budget(MIB)
    assert budget.reading(lambda: 7) == 7
    assert budget.spent().bytes < KIB

"""Tensors in nested values go to the device, and what holds them stays what it was."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milabench_ng.bench.moving import to_device


class Pair(NamedTuple):
    """A batch with names."""

    images: Tensor
    count: int


def test_named_tuples_keep_their_names() -> None:
    moved = to_device(Pair(torch.ones(2), 3), torch.device("cpu"), torch.float16)
    assert isinstance(moved, Pair)
    assert (moved.images.dtype, moved.count) == (torch.float16, 3)


def test_other_tuples_become_lists() -> None:
    whole = to_device((torch.ones(2, dtype=torch.int64), {"a": [torch.ones(1)]}), torch.device("cpu"), torch.float16)
    assert [whole[0].dtype, whole[1]["a"][0].dtype] == [torch.int64, torch.float16]

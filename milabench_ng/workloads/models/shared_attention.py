"""Attention of ranks that have a part of each text: context parallelism by all-to-all (arXiv:2309.14509)."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from milabench_ng.workloads.models.exchange import exchange
from milabench_ng.workloads.models.transformer import Attention


class SharedAttention(Attention):
    """Each rank has its part of the heads for whole texts while it attends, and all heads of its part otherwise.

    The parts of a text are in the order of the ranks. The number of ranks must divide that of the heads of keys.
    """

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What the queries of this part of the texts see of the whole."""
        return by_tokens(super().attend(by_heads(query), by_heads(key), by_heads(value)))


def by_heads(part: Tensor) -> Tensor:
    """All heads of this rank's tokens [N, H, L / ranks, size] to its heads of all tokens [N, H / ranks, L, size]."""
    ranks = dist.get_world_size()
    received = exchange(part.unflatten(1, (ranks, -1)).movedim(1, 0))  # type: ignore[no-untyped-call]
    return received.movedim(0, 2).flatten(2, 3)


def by_tokens(heads: Tensor) -> Tensor:
    """The reverse of `by_heads`."""
    ranks = dist.get_world_size()
    received = exchange(heads.unflatten(2, (ranks, -1)).movedim(2, 0))  # type: ignore[no-untyped-call]
    return received.movedim(0, 1).flatten(1, 2)

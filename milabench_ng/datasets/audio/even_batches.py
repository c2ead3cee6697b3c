"""Batches of equal work: each has short and long samples in the same shares, so that all tenants process the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


class EvenBatches:
    """An order of samples in which each batch has one sample of each range of lengths.

    The samples are sorted by length and cut into as many ranges as a batch has samples. An epoch goes through each
    range in an order of its own. What does not fill a range is left out, evenly over the lengths, so that the mean
    length of what remains is that of all.
    """

    def __init__(self, lengths: Tensor, batch_size: int) -> None:
        """``lengths``: of all samples, int64. If there are fewer than ``batch_size``, an epoch has all of them once."""
        ranges = min(batch_size, len(lengths))
        each = len(lengths) // ranges if ranges else 0
        kept = torch.arange(ranges * each) * len(lengths) // max(1, ranges * each)
        self._ranges = lengths.argsort(stable=True)[kept].view(ranges, each)

    def __call__(self, generator: torch.Generator) -> Iterator[int]:
        """One epoch of sample numbers, batch after batch."""
        places = torch.rand(self._ranges.shape, generator=generator).argsort(1)
        yield from self._ranges.gather(1, places).T.flatten().tolist()

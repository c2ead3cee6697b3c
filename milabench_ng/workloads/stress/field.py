"""A field of words that are inverted in place and summed, over and over: what a bit has lost, it never gets back."""

from __future__ import annotations

import torch
from torch import Tensor

from milabench_ng.model.units import KIB

ROW = 64 * KIB // 8
"""Words of a row, each of which has a sum of its own: where two flips could cancel out."""
STEP = 0x9E3779B97F4A7C15 - (1 << 64)
"""By which the words of a row differ from those of the one before, so that an address that is off shows."""
VALUES = "uniform random bits and their complement"


class Field:
    """Rows of random words; each row's words are those of the row before plus `STEP`."""

    def __init__(self, device: torch.device, rows: int, number: int = 0) -> None:
        """``number``: of fields with different words, whose random bits are the same."""
        first = torch.randint(-(1 << 63), (1 << 63) - 1, (ROW,), dtype=torch.int64, device=device)
        offsets = torch.arange(number * rows, (number + 1) * rows, device=device) * STEP
        self.words = torch.empty(rows, ROW, dtype=torch.int64, device=device)
        torch.add(first, offsets.unsqueeze(1), out=self.words)
        self._sums = first.sum() + offsets * ROW
        """Of the rows as they are at first, by arithmetic, not by reading them."""
        self._inverted = False

    def invert(self) -> None:
        """Read all words and write their complement."""
        self.words.bitwise_not_()
        self._inverted = not self._inverted

    def wrong(self) -> Tensor:
        """Read all words; how many rows have not the sum that they must have."""
        known = -self._sums - ROW if self._inverted else self._sums
        return torch.count_nonzero(self.words.sum(1) != known)

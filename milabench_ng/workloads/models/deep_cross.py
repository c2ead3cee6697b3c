"""DCNv2: a recommender of cross layers and a perceptron (Wang et al., arXiv:2008.13535), as MLPerf's DLRM has it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BOTTOM, TOP = (512, 256), (1024, 1024, 512, 256)
"""Widths of the perceptrons' inner layers."""
CROSSES, RANK = 3, 512
"""Cross layers, and the rank of their matrices."""


class DeepCross(nn.Module):
    """All but the tables: counts and sums of embeddings to the logarithm of the odds of a click."""

    def __init__(self, counts: int, features: int, width: int) -> None:
        """``counts``: numbers of a sample. ``features``: sums of embeddings of a sample. ``width``: of each."""
        super().__init__()
        joined = (features + 1) * width
        self.bottom = perceptron((counts, *BOTTOM, width))
        self.narrow = nn.ModuleList(nn.Linear(joined, RANK, bias=False) for _ in range(CROSSES))
        self.wide = nn.ModuleList(nn.Linear(RANK, joined) for _ in range(CROSSES))
        self.top = perceptron((joined, *TOP))
        self.head = nn.Linear(TOP[-1], 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, counts: Tensor, embedded: Tensor) -> Tensor:
        """Numbers [N, counts] and sums [N, features, width] to logits [N]; 0 before the first step."""
        whole = torch.cat((self.bottom(counts), embedded.flatten(1)), dim=1)
        crossed = whole
        for narrow, wide in zip(self.narrow, self.wide, strict=True):
            crossed = torch.addcmul(crossed, whole, wide(narrow(crossed)))
        logits: Tensor = self.head(self.top(crossed)).squeeze(1)
        return logits


def perceptron(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers of these widths, a rectifier after each."""
    return nn.Sequential(*(layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())))


def click_loss(model: nn.Module, counts: Tensor, embedded: Tensor, clicked: Tensor) -> Tensor:
    """Binary cross entropy, in fp32, of whole ``counts`` [N, counts], whose logarithm the model sees."""
    logits = model(counts.clamp(min=0).float().log1p().to(embedded.dtype), embedded)
    return F.binary_cross_entropy_with_logits(logits.float(), clicked.float())

"""A vision transformer as libraries of networks write it: one product for queries, keys and values, fused attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-6


class PlainVisionTransformer(nn.Module):
    """The network of Dosovitskiy et al. (arXiv:2010.11929), without dropout: weight by weight that of torchvision."""

    def __init__(self, side: int, patch: int, layers: int, heads: int, width: int, classes: int) -> None:
        """``side``: of a picture, a multiple of ``patch``. Weights are drawn as torchvision draws them."""
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.summary = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, (side // patch) ** 2 + 1, width).normal_(std=0.02))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, EPS)
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.patches.weight, std=math.sqrt(1 / (3 * patch * patch)))
        for zero in (self.patches.bias, self.head.weight, self.head.bias):
            nn.init.zeros_(zero)  # type: ignore[arg-type]

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures [N, 3, side, side] to logits [N, classes]."""
        tokens = self.patches(pictures).flatten(2).transpose(1, 2)
        hidden = torch.cat((self.summary.expand(len(tokens), -1, -1), tokens), 1) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(hidden)[:, 0]))
        return logits


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width, EPS)
        self.mixed = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.before_inner = nn.LayerNorm(width, EPS)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)
        for layer in (self.mixed, self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
        for layer in (self.inner, self.outer):
            nn.init.normal_(layer.bias, std=1e-6)
        for layer in (self.mixed, self.joined):
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[N, L, D] to [N, L, D]."""
        parts = self.mixed(self.before_attention(hidden)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts.unbind()).transpose(1, 2).flatten(2)
        hidden = hidden + self.joined(seen)
        onwards: Tensor = hidden + self.outer(F.gelu(self.inner(self.before_inner(hidden))))
        return onwards

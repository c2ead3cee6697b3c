"""NeuMF: collaborative filtering by large embedding tables and a perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class NeuMF(nn.Module):
    """A product of embeddings and a perceptron over other embeddings, joined by one linear layer (arXiv:1708.05031)."""

    def __init__(self, users: int, items: int, factors: int, layers: Sequence[int], dropout: float = 0.0) -> None:
        """``layers``: widths of the perceptron; user and item share the first. ``dropout``: after each layer."""
        super().__init__()
        self.factors = nn.ModuleList(nn.Embedding(count, factors) for count in (users, items))
        self.features = nn.ModuleList(nn.Embedding(count, layers[0] // 2) for count in (users, items))
        after = (
            (nn.ReLU(), nn.Dropout(dropout)) if dropout else (nn.ReLU(),)
        )  # one that drops nothing would be launched
        self.perceptron = nn.Sequential(*(part for pair in pairwise(layers) for part in (nn.Linear(*pair), *after)))
        self.output = nn.Linear(factors + layers[-1], 1)
        for module in self.modules():
            match module:
                case nn.Embedding():
                    nn.init.normal_(module.weight, 0.0, 0.01)
                case nn.Linear():
                    nn.init.xavier_uniform_(module.weight)
        nn.init.kaiming_uniform_(self.output.weight, nonlinearity="linear")

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Numbers of users [N] and items [N] to logits [N]."""
        product = self.factors[0](users) * self.factors[1](items)
        features = torch.cat((self.features[0](users), self.features[1](items)), dim=1)
        return self.output(torch.cat((product, self.perceptron(features)), dim=1)).squeeze(1)  # type: ignore[no-any-return]

"""How networks of the family train: AdamW with a constant rate, and texts until the clock stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from milabench_ng.bench import Bench

BETAS = (0.9, 0.95)
DECAY = 0.1
CHUNK = 1024
"""Tokens whose logits exist at once: over 128,256 words, they need 1.5 GB."""
Texts = tuple[Tensor, Tensor]
"""Tokens [N, L], and those that follow each."""


def adamw(parameters: Iterable[nn.Parameter], learning_rate: float, decay: float = DECAY) -> torch.optim.AdamW:
    """The optimizer, in its fused form."""
    return torch.optim.AdamW(parameters, lr=learning_rate, betas=BETAS, weight_decay=decay, fused=True)


def train(
    bench: Bench,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    example: Texts,
    batches: Iterator[Texts],
) -> None:
    """Rehearse with ``example``, then train on ``batches`` like it; an item is a token."""
    bench.rehearse(lambda: loss(*example))
    for tokens, following in bench.measure(batches, count=example[0].numel()):
        bench.step(loss(tokens, following), optimizer)

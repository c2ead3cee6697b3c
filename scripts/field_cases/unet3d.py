"""The 3D-UNet of the family ``unet3d``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from field_cases.case import AnyCase, Case
from milabench_ng.workloads.models.unet3d import UNet3d


def cases(small: bool) -> Iterator[AnyCase]:
    """In all three precisions."""
    for precision in ("fp32", "amp", "half"):
        yield volumes(precision, (16, 32, 32) if small else (48, 384, 384))


def volumes(precision: str, sides: tuple[int, int, int]) -> Case:
    """The 3D-UNet, on one patch of random numbers; in pure fp16 with a learning rate of 0."""
    learning_rate = 0.0 if precision == "half" else 1e-3
    items = sides[0] * sides[1] * sides[2]

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        logits = model(batch[0])
        return F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))

    return Case(
        name=f"unet3d {precision}",
        precision=precision,
        items=items,
        unit="voxels",
        model=UNet3d,
        inputs=lambda device: [torch.randn(1, 1, *sides, device=device)],
        loss=loss,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True),
    )

"""Classifiers of the family ``cv``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from field_cases.case import AnyCase, Case
from milabench_ng.workloads.cv.cv_train import cv_train
from milabench_ng.workloads.models.picture_networks import network


def cases(small: bool) -> Iterator[AnyCase]:
    """Six of the published models."""
    for name, precision, size, channels_last in (
        ("resnet50", "fp32", 128, False),
        ("resnet50", "amp", 256, False),
        ("resnet50", "amp", 256, True),
        ("mobilenet_v3_large", "amp", 256, False),
        ("vit_b_16", "amp", 128, False),
        ("convnext_base", "amp", 128, False),
    ):
        yield pictures(name, precision, 2 if small else size, 64 if small else 224, channels_last)


def pictures(arch: Any, precision: str, count: int, side: int, channels_last: bool) -> Case:
    """A classifier of the family ``cv``."""

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        logits = model(batch[0]).float()
        return F.cross_entropy(logits, torch.rand_like(logits))

    given = {"arch": arch, "batch_size": count, "width": side, "height": side, "channels_last": channels_last}
    return Case(
        name=f"{arch} {precision}{' channels_last' * channels_last}",
        precision=precision,
        items=count,
        unit="images",
        model=lambda: network(arch, side, side),
        inputs=lambda device: [torch.rand(count, 3, side, side, device=device)],
        loss=loss,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=2e-5, fused=True),
        workload=lambda bench: cv_train(bench, **given),
        channels_last=channels_last,
        autotune=True,
    )

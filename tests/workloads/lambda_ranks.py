"""What the ranks of Lambda's tasks do in tests; each rank imports it anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from launching import run
from torch import Tensor, nn

from milabench_ng.bench import Bench
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.models.transformer_xl import TransformerXL

Told = dict[str, list[float]]


def shared(name: str, place: Path | None, options: dict[str, Any], ranks: int, rank: int) -> Told:
    """Five steps on every ``ranks``-th sample of the batches that one process would have, without dropout."""
    batch_in = 1 if name in ("txl", "gnmt") else 0
    empty = TransformerXL.no_memory

    def part(batch: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(_own(value, batch_in, rank, ranks) for value in batch)

    def without_dropout(module: nn.Module) -> None:
        for each in module.modules():
            if isinstance(each, nn.Dropout):
                each.p = 0.0

    with mock.patch.object(TransformerXL, "no_memory", lambda self, columns: empty(self, columns // ranks)):
        return _trained(name, place, options, steps=5, rank=rank, part=part, prepare=without_dropout)


def own(name: str, place: Path | None, options: dict[str, Any], rank: int) -> Told:
    """Two steps, each rank on batches of its own."""
    with (
        mock.patch("milabench_ng.workloads.models.wave_glow.WIDTH", 4),
        mock.patch("milabench_ng.workloads.nvidia.ssd_resnet50.RESNET", (1, 1, 1, 1)),
    ):
        return _trained(name, place, options, steps=2, rank=rank, tenant=rank)


def _trained(
    name: str, place: Path | None, options: dict[str, Any], *, steps: int, rank: int, tenant: int = 0, **how: Any
) -> Told:
    placed: list[nn.Module] = []

    def watch(bench: Bench) -> None:
        put, measure = bench.place, bench.measure

        def keep(module: nn.Module) -> nn.Module:
            how.get("prepare", lambda _: None)(module)
            placed.append(put(module))
            return placed[0]

        def parts(batches: Iterable[Any], **counting: Any) -> Iterator[Any]:
            return measure(map(how["part"], batches), **counting) if "part" in how else measure(batches, **counting)

        bench.place, bench.measure = keep, parts  # type: ignore[method-assign,assignment]

    channel = run(
        builtin_workloads()[name], steps, lambda _: place or Path(), watch, rank=rank, tenant=tenant, **options
    )
    losses = [loss for loss in channel.losses if loss is not None]
    return {"losses": losses, "weights": [weight.double().sum().item() for weight in placed[0].parameters()]}


def _own(value: Any, batch_in: int, rank: int, ranks: int) -> Any:
    if isinstance(value, Tensor):
        return value[rank::ranks] if batch_in == 0 or value.dim() < 2 else value[:, rank::ranks].contiguous()
    return value[rank::ranks] if isinstance(value, list) else value


torch.set_num_threads(1)

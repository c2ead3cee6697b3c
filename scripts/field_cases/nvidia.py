"""NVIDIA's examples, of the family ``nvidia``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from field_cases.case import AnyCase, Case
from milabench_ng.workloads.models.bert import VOCABULARY, SpanFinder, span_loss
from milabench_ng.workloads.models.transformer_xl import TransformerXL, next_word_loss
from milabench_ng.workloads.models.wave_glow import BANDS, HOP, WaveGlow, unlikelihood
from milabench_ng.workloads.nvidia.lamb import Lamb
from milabench_ng.workloads.nvidia.resnet50 import resnet50
from milabench_ng.workloads.nvidia.waveglow import LARGEST, SEGMENT
from milabench_ng.workloads.nvidia.weight_decay import decayed

TXL_BASE = {"layers": 16, "width": 512, "heads": 8, "inner": 2048, "length": 192}
SMALL_TXL = {"layers": 2, "width": 64, "heads": 2, "inner": 64, "length": 32}
BERT_LARGE = {"layers": 24, "width": 1024, "heads": 16, "inner": 4096, "longest": 384}
SMALL_BERT = {"layers": 2, "width": 64, "heads": 2, "inner": 64, "longest": 64}


def cases(small: bool) -> Iterator[AnyCase]:
    """Four models, in tf32 and amp."""
    for precision, size in (("tf32", 256), ("amp", 512)):
        yield labelled(precision, 2 if small else size)
    for precision, size in (("tf32", 16), ("amp", 32)):
        yield segments(precision, 1 if small else size, HOP if small else SEGMENT)
    for precision, size in (("tf32", 52), ("amp", 104)):
        yield words(precision, 2 if small else size, SMALL_TXL if small else TXL_BASE, 1_000 if small else 267_735)
    for precision, size in (("tf32", 64), ("amp", 112)):
        yield questions(precision, 2 if small else size, SMALL_BERT if small else BERT_LARGE)


def labelled(precision: str, count: int) -> Case:
    """ResNet-50 of the family ``nvidia``, on one batch of pictures of one class; SGD with momentum."""

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]), torch.zeros(count, dtype=torch.int64, device=batch[0].device))

    return Case(
        name=f"lambda resnet50 {precision}",
        precision=precision,
        items=count,
        unit="images",
        model=torchvision.models.resnet50,
        inputs=lambda device: [torch.randn(count, 3, 224, 224, device=device)],
        loss=loss,
        optimizer=lambda model: torch.optim.SGD(decayed(model, 1e-4), lr=0.1, momentum=0.9),
        workload=lambda bench: resnet50(bench, batch_size=count),
        autotune=True,
    )


def segments(precision: str, count: int, samples: int) -> Case:
    """WaveGlow on one batch of noise; Adam with a learning rate of 0."""

    def inputs(device: torch.device) -> list[Tensor]:
        frames = samples // HOP + 1
        return [torch.randn(count, samples, device=device), torch.randn(count, BANDS, frames, device=device)]

    return Case(
        name=f"waveglow {precision}",
        precision=precision,
        items=count * samples,
        unit="audio samples",
        model=WaveGlow,
        inputs=inputs,
        loss=lambda model, batch: unlikelihood(*model(*batch)),
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.0, fused=True),
        clip_norm=LARGEST,
        autotune=True,
    )


def words(precision: str, count: int, sizes: Mapping[str, Any], vocabulary: int) -> Case:
    """Transformer-XL on one segment after a full memory; LAMB with a learning rate of 0."""
    length, shape = sizes["length"], {name: sizes[name] for name in ("layers", "width", "heads", "inner")}

    def inputs(device: torch.device) -> list[Tensor]:
        tokens = torch.randint(vocabulary, (2, length, count), device=device, dtype=torch.int32)
        memory = [torch.randn(length, count, shape["width"], device=device) for _ in range(shape["layers"])]
        return [*tokens, *memory]

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        tokens, following, *memory = batch
        logits, _ = model(tokens, memory)
        return next_word_loss(logits, following)

    return Case(
        name=f"txl {precision}",
        precision=precision,
        items=count * length,
        unit="tokens",
        model=lambda: TransformerXL(vocabulary, **shape, dropout=0.1),
        inputs=inputs,
        loss=loss,
        optimizer=lambda model: Lamb(model.parameters(), lr=0.0),
        clip_norm=0.25,
    )


def questions(precision: str, count: int, sizes: Mapping[str, Any]) -> Case:
    """BERT on full sequences; AdamW with a learning rate of 0."""

    def inputs(device: torch.device) -> list[Tensor]:
        tokens = torch.randint(VOCABULARY, (count, sizes["longest"]), device=device)
        spans = torch.randint(sizes["longest"], (count, 2), device=device)
        return [tokens, torch.ones_like(tokens), torch.zeros_like(tokens), spans]

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        return span_loss(model(*batch[:3]), batch[3])

    return Case(
        name=f"bert_large {precision}",
        precision=precision,
        items=count,
        unit="sequences",
        model=lambda: SpanFinder(**sizes, attention="eager"),
        inputs=inputs,
        loss=loss,
        optimizer=lambda model: torch.optim.AdamW(decayed(model, 0.01), lr=0.0, fused=True),
        clip_norm=1.0,
    )

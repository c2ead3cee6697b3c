"""Tests of the profile ``parallel``, whose ranks one device has alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from field_cases.case import AnyCase, Case, Copies
from field_cases.modern import GOAL, TINY, texts
from field_cases.shapes import LLAMA_8B, ROUTED_21B
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.h2d import Direction
from milabench_ng.workloads.modern.llm_fsdp import share_attention, share_out
from milabench_ng.workloads.modern.moe_ep import shared_model
from milabench_ng.workloads.modern.training import CHUNK

DIRECTIONS: tuple[Direction, ...] = ("in", "out", "both")


def cases(small: bool) -> Iterator[AnyCase]:
    """Copies, and the trainings with two layers, so that one GPU of 80 GB holds them."""
    for direction in DIRECTIONS:
        yield Copies(f"h2d_{direction}", 1 if small else 256, direction, goal=GOAL)
    routed = msgspec.structs.replace(TINY, tied=False, experts=8, active=2, head_width=24)
    size = routed if small else msgspec.structs.replace(ROUTED_21B, layers=2)
    yield shared("moe_ep", size, 2, 64 if small else 4096, lambda mesh: shared_model(size, mesh)[0])
    dense = msgspec.structs.replace(TINY if small else LLAMA_8B, layers=2, tied=False)
    length = 64 if small else 16_384
    yield shared("llm_cp", dense, 1, length, lambda mesh: parts_of_texts(dense, length, mesh))


def shared(name: str, size: Dimensions, count: int, length: int, model: Callable[[DeviceMesh], nn.Module]) -> Case:
    """A language model that ranks share out, on one batch."""
    given = texts(name, size, count, length)
    return dataclasses.replace(given, model=lambda: model(all_ranks()), in_ranks=True, goal=GOAL)


def parts_of_texts(size: Dimensions, length: int, mesh: DeviceMesh) -> Transformer:
    """The model of llm_fsdp, whose ranks have parts of texts."""
    with torch.device("meta"):
        model = Transformer(size, chunk=CHUNK, recompute=True)
        share_attention(model, length)
    share_out(model, mesh)
    return model


def all_ranks() -> DeviceMesh:
    """The mesh of all ranks."""
    return init_device_mesh("cuda" if dist.get_backend() == "nccl" else "cpu", (dist.get_world_size(),))

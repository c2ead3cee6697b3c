"""Tests of one GPU of the family ``modern``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from field_cases.case import WARM_STEPS, AnyCase, Case, Generation, Prompt, Serving, Speculation, sizes_of
from field_cases.shapes import DENSE_0_8B, LLAMA_1B, LLAMA_8B, ROUTED_0_9B
from milabench_ng.datasets.tables.clicks import COUNTS, HOT
from milabench_ng.workloads.models.actors import Actors, group_advantages
from milabench_ng.workloads.models.adapters import AdaptedTransformer
from milabench_ng.workloads.models.deep_cross import DeepCross, click_loss
from milabench_ng.workloads.models.diffusion_transformer import DiffusionTransformer, NoiseSchedule, noise_loss
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.narrow_layers import for_training
from milabench_ng.workloads.models.sharded_tables import ShardedTables
from milabench_ng.workloads.models.transducer import Histories, Transducer, last_event_loss
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.dit import follow
from milabench_ng.workloads.modern.grpo import Rollout, Rule, grpo, questions
from milabench_ng.workloads.modern.hstu import CLIP, MEDIAN, MOMENTS, SHARES, hstu, quantiles
from milabench_ng.workloads.modern.llm_serve import Server
from milabench_ng.workloads.modern.serving import pages_for
from milabench_ng.workloads.modern.training import BETAS, DECAY, adamw

TINY = Dimensions(layers=2, width=64, heads=4, kv_heads=2, inner=128, vocabulary=512)
DIT_XL = {"layers": 28, "width": 1152, "heads": 16, "side": 64}
SMALL_DIT = {"layers": 2, "width": 64, "heads": 4, "side": 8}
VIT_LARGE = {"image_size": 224, "num_layers": 24, "num_heads": 16, "hidden_dim": 1024, "mlp_dim": 4096}
SMALL_VIT = {"image_size": 32, "num_layers": 2, "num_heads": 4, "hidden_dim": 64, "mlp_dim": 256}
TABLES = {"features": 24, "rows": 8_000_000, "width": 128}
SMALL_TABLES = {"features": 4, "rows": 1_000, "width": 16}
HSTU = {"layers": 3, "width": 512, "heads": 4, "head_size": 128}
SMALL_HSTU = {"layers": 2, "width": 64, "heads": 4, "head_size": 16}
SEED = 1234
GOAL = 0.98
"""Of this suite."""


def cases(small: bool) -> Iterator[AnyCase]:
    """Tests of one GPU, with batches of an H200; llm_decode has 96 texts, not 224, beside what the other loop keeps."""
    for case in _cases(small):
        yield dataclasses.replace(case, goal=GOAL)


def _cases(small: bool) -> Iterator[AnyCase]:
    yield diffusion("dit", 2 if small else 64, 1, SMALL_DIT if small else DIT_XL)
    yield diffusion("dit_video", 1, 3 if small else 30, SMALL_DIT if small else DIT_XL)
    yield patches(2 if small else 256, SMALL_VIT if small else VIT_LARGE)
    yield clicks(16 if small else 8192, SMALL_TABLES if small else TABLES)
    yield histories(
        {"batch_size": 4, "length": 64, "median": 40, "block": 16, "rows": 1_000}
        if small
        else {"batch_size": 32, "length": 4096, "median": MEDIAN, "block": 256, "rows": 24_000_000},
        SMALL_HSTU if small else HSTU,
    )
    routed = msgspec.structs.replace(TINY, experts=8, active=2)
    count, length = (2, 64) if small else (8, 4096)
    yield texts("llm_pretrain", TINY if small else DENSE_0_8B, count, length)
    yield texts("llm_pretrain_fp8", TINY if small else DENSE_0_8B, count, length, fp8=True, compile=not small)
    yield texts("moe", routed if small else ROUTED_0_9B, count // 2, length)
    large = msgspec.structs.replace(TINY, tied=False) if small else LLAMA_8B
    yield texts("llm_lora", large, 2, length, rank=16)
    yield Prompt("llm_prefill", length // 2, large)
    yield Prompt("llm_prefill_fp8_compiled", length // 2, large, "fp8", compile=not small)
    yield Generation("llm_decode", 2 if small else 96, length, large)
    for concurrency in (1, 4) if small else (1, 8, 64):
        yield Serving(
            f"llm_serve_{concurrency}", concurrency, length // 4, length // 4, 8 if small else 128, large, SEED
        )
    draft = TINY if small else LLAMA_1B
    for items in (1, 4) if small else (1, 8, 64):
        yield Speculation(f"llm_speculate_{items}", items, length // 4, length // 4, large, draft, SEED)
    yield rounds(
        {"prompts": count, "answers": 8, "prompt": length // 16, "answer": length // 16, "page": 8 if small else 128},
        TINY if small else DENSE_0_8B,
    )


def texts(
    name: str, size: Dimensions, count: int, length: int, rank: int = 0, *, fp8: bool = False, compile: bool = False
) -> Case:
    """A language model of the family ``modern`` on one batch; with ``rank``, adapters of a frozen one.

    ``fp8``: what its blocks multiply; ``compile``: each of them.
    """

    def model() -> nn.Module:
        with torch.device("meta"):
            made = AdaptedTransformer(size, rank, chunk=1024, recompute=True) if rank else Transformer(size)
        if fp8:
            for_training(made.blocks, "fp8")
        for block in made.blocks if compile else ():
            block.compile()
        return made

    return Case(
        name=name,
        precision="bf16_master",
        items=count * length,
        unit="tokens",
        model=model,
        inputs=lambda device: list(torch.randint(size.vocabulary, (2, count, length), device=device)),
        loss=lambda model, batch: model(*batch),
        optimizer=lambda model: torch.optim.AdamW(
            [weight for weight in model.parameters() if weight.requires_grad],
            lr=1e-4,
            betas=BETAS,
            weight_decay=DECAY,
            fused=True,
        ),
    )


class Rounds(Actors):
    """Rounds of reinforcement learning as one would write them."""

    def __init__(self, size: Dimensions, shape: Mapping[str, int]) -> None:
        self.shape, self.texts = shape, shape["prompts"] * shape["answers"]
        self.longest = pages_for(shape["prompt"] + shape["answer"] - 1, shape["page"])
        super().__init__(size, texts=self.texts, pages=self.texts * self.longest, page=shape["page"])
        self.rule = Rule(size.vocabulary, SEED)

    @functools.cached_property
    def rollout(self) -> Rollout:
        """With graphs of its steps, on a GPU."""
        server = Server(self.generator, self.texts, self.longest)
        with torch.no_grad():
            for _ in range(WARM_STEPS):
                self.generator(*server.idle)
            if self.generator.tokens.is_cuda:
                server.capture()
        return Rollout(server, *(self.shape[name] for name in ("prompts", "answers", "prompt", "answer")))

    def forward(self, asked: Tensor) -> Tensor:
        """The loss of a round."""
        tokens = self.rollout.answered(asked)
        rewards = self.rule.rewards(tokens, self.shape["answer"])
        advantages = group_advantages(rewards.view(len(asked), -1)).flatten().to(tokens.device)
        return self.loss(tokens, self.shape["answer"], advantages, 0.04)


def rounds(shape: Mapping[str, int], size: Dimensions) -> Case:
    """Reinforcement learning of the family ``modern``; the prompts of the plain loop are the same in all rounds."""

    def model() -> nn.Module:
        with torch.device("meta"):
            return Rounds(size, shape)

    def sending(model: nn.Module) -> Callable[[Optimizer], None]:
        assert isinstance(model, Rounds)
        return lambda _optimizer: model.send()

    return Case(
        name="grpo",
        precision="bf16_master",
        items=shape["prompts"] * shape["answers"] * shape["answer"],
        unit="tokens",
        model=model,
        inputs=lambda device: [next(questions(SEED, shape["prompts"], shape["prompt"], size.vocabulary)).to(device)],
        loss=lambda model, batch: model(*batch),
        optimizer=lambda model: adamw([one for one in model.parameters() if one.requires_grad], 1e-6),
        after=sending,
        workload=lambda bench: grpo(bench, **shape, **sizes_of(size)),
    )


def diffusion(name: str, count: int, frames: int, sizes: Mapping[str, Any]) -> Case:
    """DiT on one batch of noise, of ``count`` videos; AdamW, and the moving average of its masters."""
    schedules = functools.cache(NoiseSchedule)

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        return noise_loss(model, schedules(batch[0].device), *batch)

    def averaging(model: nn.Module) -> Callable[[Optimizer], None]:
        return functools.partial(
            follow, [weight.detach().to(torch.float32, copy=True) for weight in model.parameters()]
        )

    return Case(
        name=name,
        precision="bf16_master",
        items=count * frames,
        unit="images" if frames == 1 else "frames",
        model=lambda: DiffusionTransformer(**sizes, frames=frames),
        inputs=lambda device: [
            torch.randn(count * frames, 4, sizes["side"], sizes["side"], device=device),
            torch.randint(1000, (count,), device=device),
        ],
        loss=loss,
        optimizer=lambda model: torch.optim.AdamW(
            model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        ),
        after=averaging,
    )


def patches(count: int, sizes: Mapping[str, Any]) -> Case:
    """ViT-L/16 on one batch of noise; AdamW."""
    side = sizes["image_size"]
    return Case(
        name="vit",
        precision="bf16_master",
        items=count,
        unit="images",
        model=lambda: torchvision.models.VisionTransformer(patch_size=16, **sizes),
        inputs=lambda device: [
            torch.randn(count, 3, side, side, device=device),
            torch.randint(1000, (count,), device=device),
        ],
        loss=lambda model, batch: F.cross_entropy(model(batch[0]).float(), batch[1]),
        optimizer=lambda model: torch.optim.AdamW(
            model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        ),
    )


class Recommender(DeepCross):
    """The dense part, with tables of its own, which no optimizer knows."""

    def __init__(self, features: int, rows: int, width: int) -> None:
        super().__init__(COUNTS, features, width)
        self.embed = functools.cache(lambda device: ShardedTables(features, rows, width, 0.01, device, 1))


def clicks(count: int, sizes: Mapping[str, Any]) -> Case:
    """DCNv2 on one batch of clicks, on one device; Adagrad, and SGD of the rows."""

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        assert isinstance(model, Recommender)
        numbers, ids = batch
        embedded = model.embed(ids.device)(ids, model.head.weight.dtype)
        return click_loss(model, numbers[:, 1:], embedded, numbers[:, 0])

    return Case(
        name="dlrm",
        precision="bf16_master",
        items=count,
        unit="samples",
        model=lambda: Recommender(**sizes),
        inputs=lambda device: [
            torch.randint(2, (count, 1 + COUNTS), device=device, dtype=torch.int32),
            torch.randint(1 << 30, (count, sizes["features"], HOT), device=device, dtype=torch.int32),
        ],
        loss=loss,
        optimizer=lambda model: torch.optim.Adagrad(model.parameters(), lr=1e-3),
    )


class SequentialRecommender(Transducer):
    """The dense part, with a table of its own, which no optimizer knows."""

    def __init__(self, rows: int, length: int, sizes: Mapping[str, int]) -> None:
        super().__init__(**sizes, actions=len(SHARES) + 1, length=length)
        self.embed = functools.cache(lambda device: ShardedTables(1, rows, sizes["width"], 0.01, device, 1))


def histories(shape: Mapping[str, int], sizes: Mapping[str, int]) -> Case:
    """HSTU on one batch of histories, on one device; Adam, and SGD of the rows."""
    users = shape["batch_size"]
    lengths = quantiles(users, shape["median"], shape["length"])
    placed = functools.cache(lambda device: Histories(lengths, shape["block"], device))

    def loss(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
        assert isinstance(model, SequentialRecommender)
        ids, actions, listened = batch
        embedded = model.embed(ids.device)(ids, model.head.weight.dtype).flatten(1)
        return last_event_loss(model(embedded, actions, placed(ids.device)), listened)

    return Case(
        name="hstu",
        precision="bf16_master",
        items=users,
        unit="samples",
        model=lambda: SequentialRecommender(shape["rows"], placed(torch.device("cpu")).length, sizes),
        inputs=lambda device: [
            torch.randint(1 << 30, (sum(lengths), 1, 1), device=device, dtype=torch.int32),
            torch.randint(len(SHARES), (sum(lengths),), device=device),
            torch.randint(2, (users,), device=device),
        ],
        loss=loss,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-3, betas=MOMENTS, fused=True),
        clip_norm=CLIP,
        workload=lambda bench: hstu(bench, **shape, **sizes),
    )

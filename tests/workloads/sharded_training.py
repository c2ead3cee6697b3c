"""A sharded training in the ranks of a process group; light, since every rank imports it anew."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from launching import run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional as F

from milabench_ng.bench import Bench
from milabench_ng.bench.precision import MODES
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.events import Done, GradientNorm, Loss, Ready, Slice
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.generator import Generator
from milabench_ng.workloads.models.shared_experts import SharedExperts
from milabench_ng.workloads.models.shared_generator import SharedGenerator
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.llm_decode import llm_decode
from milabench_ng.workloads.modern.llm_fsdp import llm_fsdp, own_part, share_attention, share_out
from milabench_ng.workloads.modern.moe_ep import BALANCE, moe_ep
from milabench_ng.workloads.modern.training import Texts, adamw

WORKLOADS = {each.name: each for each in (llm_fsdp, moe_ep)}
RANKS, LENGTH = 2, 32


@dataclasses.dataclass(frozen=True)
class ShardedTraining:
    """Two steps of a workload that trains one model in all ranks."""

    workload: str
    place: Path
    options: dict[str, Any]

    def __call__(self, rank: int) -> dict[str, Any]:
        reduce, reduced = dist.reduce_scatter_single, set()

        def watched(output: torch.Tensor, *given: Any, **named: Any) -> Any:
            reduced.add(str(output.dtype))
            return reduce(output, *given, **named)

        dist.reduce_scatter_single = watched
        options = {"batch_size": 2, "length": 64, **self.options}
        channel = run(WORKLOADS[self.workload], 2, lambda _: self.place, rank=rank, tenant=rank, **options)
        return {
            "most": read_builtin()[self.workload].most_of_a_step(options, dist.get_world_size()),
            "count": channel.one(Done).count,
            "notes": [event.notes for event in channel.all(Slice)],
            "losses": {event.step: event.value for event in channel.all(Loss)},
            "norms": {event.step: event.value for event in channel.all(GradientNorm)},
            "parameters": channel.one(Ready).parameters,
            "reduced": sorted(reduced),
        }


@dataclasses.dataclass(frozen=True)
class KnownTokens:
    """What a generator with known weights says, whether ranks share it out or one process has it all."""

    size: Dimensions
    batch: int = 4
    ring: int = 12

    def __call__(self, rank: int) -> list[list[int]]:
        """The tokens that a rank says."""
        whole, part = self._whole(), SharedGenerator(self.size, self.batch, self.ring)
        theirs = dict(whole.named_parameters()) | dict(whole.named_buffers())
        for name, mine in (*part.named_parameters(), *part.named_buffers()):
            found = theirs[name].data
            for axis, (all_of_it, part_of_it) in enumerate(zip(found.shape, mine.shape, strict=True)):
                if part_of_it < all_of_it:
                    found = found.chunk(RANKS, axis)[rank]
            mine.data.copy_(found)
        return self._said(part)

    def alone(self) -> list[list[int]]:
        """The same in one process."""
        return self._said(self._whole())

    def _whole(self) -> Generator:
        torch.manual_seed(0)
        generator = Generator(self.size, self.batch, self.ring)
        generator.reset_parameters()
        for weight in generator.model.parameters():
            weight.data *= 4  # so that tokens differ
        return generator

    @torch.inference_mode()
    def _said(self, generator: Generator) -> list[list[int]]:
        return [generator().tolist() for _ in range(2 * self.ring + 3)]


@dataclasses.dataclass(frozen=True)
class Generation:
    """Three steps of llm_decode in each rank."""

    sizes: dict[str, int]

    def __call__(self, rank: int) -> tuple[int, list[list[int]]]:
        said: list[list[int]] = []

        def watch(bench: Bench) -> None:
            infer = bench.infer
            bench.infer = lambda model, *inputs: said.append(infer(model, *inputs).tolist())  # type: ignore[method-assign]

        channel = run(llm_decode, 3, None, watch, rank=rank, batch_size=4, ring=16, **self.sizes)
        return channel.one(Done).count, said


Kind = Literal["own texts", "shared texts", "shared experts"]
"""What the ranks have besides their parts of the weights."""


class PlainExperts(nn.Module):
    """Routed experts in one process, one after the other."""

    def __init__(self, size: Dimensions) -> None:
        super().__init__()
        self.active = size.active
        self.router = nn.Linear(size.width, size.experts, bias=False)
        self.gate = nn.Parameter(torch.empty(size.experts, size.width, size.inner))
        self.up = nn.Parameter(torch.empty(size.experts, size.width, size.inner))
        self.down = nn.Parameter(torch.empty(size.experts, size.inner, size.width))
        self.unbalanced = torch.zeros(())

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = self.router(hidden).float()
        best, chosen = logits.topk(self.active, -1)
        used = F.one_hot(chosen, logits.shape[-1])
        shares = (best.softmax(-1)[..., None] * used).sum(-2).to(hidden.dtype)
        fractions = used.float().sum(-2).mean(1) / self.active
        self.unbalanced = (len(self.gate) * fractions * logits.softmax(-1).mean(1)).sum(1).mean()
        parts = [
            shares[..., expert, None] * (F.silu(hidden @ self.gate[expert]) * (hidden @ self.up[expert]) @ down)
            for expert, down in enumerate(self.down)
        ]
        return torch.stack(parts).sum(0)


@dataclasses.dataclass(frozen=True)
class KnownSteps:
    """Three steps on known texts from known weights, whether ranks share out the model or one process has it all."""

    sizes: dict[str, int]
    kind: Kind = "own texts"
    precision: str = "bf16_master"

    def __call__(self, rank: int) -> list[list[float]]:
        """The weights that a rank has in the end, gathered from all."""
        model, mesh = self._model(), init_device_mesh("cpu", (dist.get_world_size(),))
        texts, shared = self._texts(), []
        if self.kind == "shared texts":
            known = model.state_dict()
            share_attention(model, LENGTH)
            model.load_state_dict(known)
            model.to(self._dtype)
            texts = [own_part(some) for some in texts]
        else:
            texts = [(tokens[rank : rank + 1], following[rank : rank + 1]) for tokens, following in texts]
        for block in model.blocks if self.kind == "shared experts" else ():
            plain, block.feed_forward = block.feed_forward, SharedExperts(model.size, mesh, BALANCE)
            block.feed_forward.router = plain.router
            mine = slice(rank * block.feed_forward.own, (rank + 1) * block.feed_forward.own)
            for name in ("gate", "up", "down"):
                weights = DTensor.from_local(getattr(plain, name).detach()[mine].clone(), mesh, [Shard(0)])
                setattr(block.feed_forward, name, nn.Parameter(weights))
                shared.append(getattr(block.feed_forward, name))
        model.recompute = True
        share_out(model, mesh, shared)
        self._train(model, texts)
        return [weight.full_tensor().flatten().tolist() for weight in model.parameters()]  # type: ignore[attr-defined]

    def alone(self) -> tuple[list[list[float]], list[list[float]]]:
        """The weights before and after, with the texts of all ranks in each step."""
        model = self._model()
        before = [weight.flatten().tolist() for weight in model.parameters()]
        self._train(model, self._texts())
        return before, [weight.flatten().tolist() for weight in model.parameters()]

    @property
    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision == "bf16_master" else torch.float32

    def _model(self) -> Transformer:
        torch.manual_seed(0)
        model = Transformer(Dimensions(**self.sizes, tied=False), chunk=32)
        for block in model.blocks if model.size.experts else ():
            block.feed_forward = PlainExperts(model.size)
        model.reset_parameters()
        return model.to(self._dtype)

    def _texts(self) -> list[Texts]:
        """A batch for each step, of as many texts as ranks."""
        generator = torch.Generator().manual_seed(1)
        texts = torch.randint(self.sizes["vocabulary"], (3, RANKS, LENGTH + 1), generator=generator)
        return [(some[:, :-1], some[:, 1:]) for some in texts]

    def _train(self, model: Transformer, batches: list[Texts]) -> None:
        mode, optimizer = MODES[self.precision](torch.device("cpu")), adamw(model.parameters(), 1e-2)
        plain = [part for part in model.modules() if isinstance(part, PlainExperts)]
        for tokens, following in batches:
            loss = model(tokens, following)
            mode.step(loss + BALANCE * sum(part.unbalanced for part in plain), optimizer, None)

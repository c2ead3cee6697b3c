"""A sharded training in the ranks of a process group; light, since every rank imports it anew."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import torch
import torch.distributed as dist
from recording import Recording, bench_on
from torch.distributed.device_mesh import init_device_mesh

from milabench_ng.bench.precision import BF16Master
from milabench_ng.datasets.text.token_stream import Tokens128k
from milabench_ng.model.events import GradientNorm, Loss, Ready
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.llm_fsdp import llm_fsdp, share_out
from milabench_ng.workloads.modern.training import adamw


@dataclasses.dataclass(frozen=True)
class ShardedTraining:
    """Two steps of llm_fsdp in each rank."""

    place: Path
    sizes: dict[str, int]

    def __call__(self, rank: int) -> dict[str, Any]:
        channel = Recording(last=2)
        bench = bench_on(channel, data_set=Tokens128k(), data_path=self.place, tenant=rank, precision="bf16_master")
        bench.rank = rank
        reduce, reduced = dist.reduce_scatter_single, set()

        def watched(output: torch.Tensor, *given: Any, **named: Any) -> Any:
            reduced.add(str(output.dtype))
            return reduce(output, *given, **named)

        dist.reduce_scatter_single = watched
        llm_fsdp(bench, batch_size=2, length=64, **self.sizes)
        return {
            "losses": {event.step: event.value for event in channel.all(Loss)},
            "norms": {event.step: event.value for event in channel.all(GradientNorm)},
            "parameters": channel.one(Ready).parameters,
            "reduced": sorted(reduced),
        }


@dataclasses.dataclass(frozen=True)
class KnownSteps:
    """Three steps on known texts from known weights, whether ranks share out the model or one process has it all."""

    sizes: dict[str, int]
    ranks: int = 2

    def __call__(self, rank: int) -> list[list[float]]:
        """The weights that a rank has in the end, gathered from all."""
        model = self._model()
        share_out(model, init_device_mesh("cpu", (dist.get_world_size(),)))
        self._train(model, self._texts()[:, rank : rank + 1])
        return [weight.full_tensor().flatten().tolist() for weight in model.parameters()]  # type: ignore[attr-defined]

    def alone(self) -> tuple[list[list[float]], list[list[float]]]:
        """The weights before and after, with the texts of all ranks in each step."""
        model = self._model()
        before = [weight.flatten().tolist() for weight in model.parameters()]
        self._train(model, self._texts())
        return before, [weight.flatten().tolist() for weight in model.parameters()]

    def _model(self) -> Transformer:
        torch.manual_seed(0)
        model = Transformer(Dimensions(**self.sizes, tied=False), chunk=32, recompute=True)
        model.reset_parameters()
        return model.bfloat16()

    def _texts(self) -> torch.Tensor:
        """By step, text and token: as many texts as ranks."""
        generator = torch.Generator().manual_seed(1)
        return torch.randint(self.sizes["vocabulary"], (3, self.ranks, 33), generator=generator)

    def _train(self, model: Transformer, texts: torch.Tensor) -> None:
        mode, optimizer = BF16Master(torch.device("cpu")), adamw(model.parameters(), 1e-2)
        for some in texts:
            mode.step(model(some[:, :-1], some[:, 1:]), optimizer, None)

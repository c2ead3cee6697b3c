"""A sharded training in the ranks of a process group; light, since every rank imports it anew."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from recording import Recording, bench_on

from milabench_ng.datasets.text.token_stream import Tokens128k
from milabench_ng.events import GradientNorm, Loss, Ready
from milabench_ng.workloads.modern.llm_fsdp import llm_fsdp


@dataclasses.dataclass(frozen=True)
class ShardedTraining:
    """Two steps of llm_fsdp in each rank."""

    place: Path
    sizes: dict[str, int]

    def __call__(self, rank: int) -> dict[str, Any]:
        channel = Recording(last=2)
        bench = bench_on(channel, data_set=Tokens128k(), data_path=self.place, tenant=rank, precision="bf16_master")
        bench.rank = rank
        llm_fsdp(bench, batch_size=2, length=64, **self.sizes)
        return {
            "losses": {event.step: event.value for event in channel.all(Loss)},
            "norms": {event.step: event.value for event in channel.all(GradientNorm)},
            "parameters": channel.one(Ready).parameters,
        }

"""A channel that keeps what it is told, and a bench on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import torch

from milabench_ng.bench import Bench
from milabench_ng.bench.options import CommonOptions
from milabench_ng.datasets.base import DataSet
from milabench_ng.model.events import Event, Loss
from milabench_ng.records.window import WindowRule

Kind = TypeVar("Kind", bound=Event)


class Recording:
    """Ends after ``last`` steps. ``log`` holds the events and, in between, what the channel was asked."""

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.log: list[Any] = []

    def send(self, event: Event) -> None:
        self.log.append(event)

    def wait_for_start(self) -> None:
        self.log.append("wait for start")

    def poll(self, steps: int) -> None:
        self.log.append(("poll", steps))

    def ended(self, steps: int) -> bool:
        return steps >= self.last

    def all(self, kind: type[Kind]) -> list[Kind]:
        return [entry for entry in self.log if isinstance(entry, kind)]

    def one(self, kind: type[Kind]) -> Kind:
        (event,) = self.all(kind)
        return event

    @property
    def losses(self) -> list[float | None]:
        return [event.value for event in self.all(Loss)]


def bench_on(
    channel: Any,
    *,
    data_set: DataSet | None = None,
    data_path: Path | None = None,
    tenant: int = 0,
    rank: int = 0,
    precision: str = "fp32",
    seed: int = 1234,
    workers: int = 0,
    sample_duration: float = 0.0,
    tenants: int = 1,
    close_in_children: tuple[int, ...] = (),
    rule: WindowRule | None = None,
) -> Bench:
    """A bench on the CPU whose every step is a slice."""
    return Bench(
        device=torch.device("cpu"),
        options=CommonOptions(
            max_seconds=60.0, sample_duration=sample_duration, seed=seed, workers=workers, precision=precision
        ),
        rule=rule or WindowRule(),
        channel=channel,
        data_set=data_set,
        data_path=data_path,
        tenant=tenant,
        rank=rank,
        tenants=tenants,
        close_in_children=close_in_children,
    )

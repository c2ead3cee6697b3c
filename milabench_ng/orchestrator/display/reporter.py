"""Who is told how a run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from milabench_ng.orchestrator.execution.tenant import Tenant
from milabench_ng.plan import Batch
from milabench_ng.records.record import Record
from milabench_ng.requests import Estimated, Prepared, Progress


class Observer(Protocol):
    """Who is shown how a run goes on."""

    def batch_begins(self, batch: Batch, of: int) -> None:
        """A batch is about to start."""

    def tick(self, tenants: Sequence[Tenant], start_s: float | None) -> None:
        """Some times a second; ``start_s`` when the tenants work."""

    def batch_ends(self, records: Sequence[Record]) -> None:
        """Its records are written."""


class Reporter(Observer, Protocol):
    """Who is told what goes on."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def stage(self, text: str) -> None:
        """Something that may take longer than two seconds begins."""

    def preparing(self, answer: Estimated | Progress | Prepared) -> None:
        """A data set is being made ready."""

"""The shape that all telemetry sources have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from milabench_ng.telemetry.messages import SourceName


class Source(Protocol):
    """A source reads values by key; what a key is, a GPU, a tenant or the node, is its own affair."""

    @property
    def name(self) -> SourceName:
        """How samples of this source are marked."""

    @property
    def keys(self) -> tuple[str, ...]:
        """What it reads at present."""

    @property
    def values(self) -> tuple[str, ...]:
        """Names of all the values that it can give."""

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Names of values that some key does not give here."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why it gives nothing, if so."""

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """The values now, by key. A key that has vanished is passed by."""

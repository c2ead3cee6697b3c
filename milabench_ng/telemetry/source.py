"""The interface of all telemetry sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from milabench_ng.telemetry.messages import SourceName


class Source(Protocol):
    """Reads values by key; each source defines its keys: GPUs, tenants or the node."""

    @property
    def name(self) -> SourceName:
        """Name of this source in its samples."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that it currently reads."""

    @property
    def values(self) -> tuple[str, ...]:
        """Names of all values that it can provide."""

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Names of values that some key does not support here."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why it provides nothing, if so."""

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """The current values, by key. Skips keys that have vanished."""

"""Checksums of dataset twins, known beforehand. `scripts/known-twins` adds those below a data root to the file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

FILE = Path(__file__).with_suffix(".json")
TwinOrigin = tuple[str, float, int | None, tuple[tuple[str, str], ...]]
"""Name, scale, version of the generator, versions of libraries: all that a twin's bytes depend on."""


class KnownTwin(msgspec.Struct, frozen=True, kw_only=True):
    """A twin as this project made it."""

    name: str
    scale: float
    generator: int
    libraries: dict[str, str]
    checksum: str

    @property
    def origin(self) -> TwinOrigin:
        """What its bytes depend on."""
        return self.name, self.scale, self.generator, tuple(sorted(self.libraries.items()))


def read_known() -> tuple[KnownTwin, ...]:
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[KnownTwin, ...])


def encode_known(twins: Iterable[KnownTwin]) -> bytes:
    """The content of the file: one of each origin, the last, in order."""
    last = {one.origin: one for one in twins}
    found = [last[origin] for origin in sorted(last)]
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"

"""What a run proves about the code that ran and the data that was read, beyond what its records say."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec


class WheelCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The files of an installed distribution, compared with the checksums in its RECORD (PEP 627)."""

    version: str
    folder: str
    """Where it is installed."""
    sha256: str
    """SHA-256 of the RECORD's lines about the wheel's own files: the same wherever the same wheel is installed."""
    files: int
    """How many files were read: all of its Python and all of its libraries."""
    differing: tuple[str, ...] = ()
    """Files that are not those of the wheel."""


class CodeProof(msgspec.Struct, frozen=True, kw_only=True):
    """The code of mnb and of what it computes with, as it lay on disk."""

    package: dict[str, str]
    """SHA-256 of each room of this package (`sources.package_digests`)."""
    commit: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40,64}$")] | msgspec.UnsetType = msgspec.UNSET
    """The commit that was checked out where this package lies, changed or not; omitted for an installed one."""
    elsewhere: tuple[str, ...]
    """Loaded modules of this package that are none of its Python files."""
    wheels: dict[str, WheelCheck | None] = {}
    """By distribution, or by package where it has no RECORD (None). Read after the work only; earlier versions read
    torch, torchvision and numpy."""
    strays: tuple[str, ...] = ()
    """Loaded files that lie among those of a distribution, and that no RECORD has."""
    base: str
    """Folder of the Python installation."""
    prefix: str
    """Folder of the environment; the same as ``base`` if there is none."""
    folder: str
    """The folder that this package is imported from."""
    seconds: float
    """What it took to read all of this."""

    @property
    def libraries(self) -> str:
        """SHA-256 over names, versions and sums of all distributions: the same wherever the same are installed."""
        told = sorted(f"{name} {one.version} {one.sha256}" for name, one in self.wheels.items() if one)
        return hashlib.sha256("\n".join(told).encode()).hexdigest()


class DataProof(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset, of which every byte was read."""

    name: str
    scale: float
    checksum: str
    """SHA-256 of the listing of all its files, as a twin's manifest has it."""
    generator: int | None
    """Version of the twin's generator; None for a real set."""
    libraries: dict[str, str]
    """Versions of the libraries that the twin's bytes depend on."""
    files: int
    bytes: int
    changed_s: float
    """When a file was last changed (ctime, seconds since 1970): who puts a file back cannot put this back."""
    differing: tuple[str, ...] = ()
    """Files that are not those of the twin's manifest."""
    seconds: float
    """What it took."""

"""What workloads declare, for readers that must not import them; `scripts/builtin` writes that of the built-in ones."""

from __future__ import annotations

import functools
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from milabench_ng.model.catalogue import Declarations, Option, Scalar, Workload

FILE = Path(__file__).with_suffix(".json")
GROUP = "milabench_ng.workloads"
"""Of the entry points of other packages' workloads."""


def installed() -> tuple[str, ...]:
    """The names of the workloads of other packages."""
    return tuple(dict.fromkeys(entry.name for entry in entry_points(group=GROUP)))


class Declared(Declarations, frozen=True, kw_only=True, omit_defaults=True):
    """What a workload counts and reads, and its options where a profile states none."""

    defaults: dict[str, Scalar | None]


class Builtin(Declared, frozen=True, kw_only=True, omit_defaults=True):
    """The same of a workload of this package, with its options: what is wrong in a profile shows without torch."""

    options: tuple[Option, ...]


def declared(workload: Workload) -> Declared:
    """The part of ``workload`` that a reader of records compares with."""
    same = {field: getattr(workload, field) for field in Declarations.__struct_fields__}
    return Declared(defaults={option.name: option.default for option in workload.options}, **same)


@functools.cache  # each folder and each stored result that is read asks for it
def read_builtin() -> dict[str, Builtin]:
    """What the built-in workloads of this version declare, by name."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Builtin])


def encode_builtin(workloads: dict[str, Workload]) -> bytes:
    """The content of the file."""
    found = {
        name: Builtin(options=workloads[name].options, **msgspec.structs.asdict(declared(workloads[name])))
        for name in sorted(workloads)
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"

"""Memory classes: a profile may state an option by the device's memory, ``{"16GiB": 8, "80GiB": 64}``. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from milabench_ng.model.catalogue import Scalar
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short
from milabench_ng.model.units import MIB, format_bytes, parse_bytes

REACHES = 0.92
"""The part of its class that a device's memory must be.

A card shows less than its name says: ECC on GDDR memory takes a sixteenth, the driver a little more (a 24 GB A10G shows
22.2 GiB, an 80 GB H100 79.6 GiB). The largest card of 11 GB, with 11.0 GiB, does not reach a class of 12 GiB.
"""


class DeviceMemory(msgspec.Struct, frozen=True):
    """The smallest device memory of a run, which decides for all its devices."""

    device: str
    """Whose it is, for errors: index and name."""
    bytes: int | None
    """None if the driver does not tell."""


def check_classes(table: Mapping[str, object], where: str) -> None:
    """Raise InputError unless the keys of ``table`` are sizes, each of them once."""
    sizes: dict[int, str] = {}
    for name in table:
        size = parse_bytes(name, f"{where}: memory class")
        if size in sizes:
            raise InputError(f"{where}: the memory classes {sizes[size]!r} and {name!r} are the same size. Keep one")
        if size < MIB:
            raise InputError(f"{where}: memory class {short(repr(name))} is below 1 MiB. Add a unit, such as 16GiB")
        sizes[size] = name
    if not sizes:
        raise InputError(f'{where}: an empty table. The form is {{"16GiB": 8, "80GiB": 64}}')


def choose_entries(
    arguments: Mapping[str, Scalar | Mapping[str, Scalar]], memory: DeviceMemory | None, where: str
) -> tuple[dict[str, Scalar], dict[str, str]]:
    """The value of each of ``arguments``, with the entry of its class for a table, and the chosen class by argument.

    Raises InputError as `choose_class` does.
    """
    classes = {
        name: choose_class(value, memory, f"{where}: {name}")
        for name, value in arguments.items()
        if isinstance(value, Mapping)
    }
    values = {name: value[classes[name]] if isinstance(value, Mapping) else value for name, value in arguments.items()}
    return values, classes


def choose_class(table: Mapping[str, object], memory: DeviceMemory | None, where: str) -> str:
    """The largest class of ``table`` that ``memory`` reaches.

    ``memory``: None for CPU partitions, which have no memory of their own; they get the smallest class. ``where``: test
    and option, for errors. Raises InputError if the memory reaches no class, or is not known.
    """
    sizes = {name: parse_bytes(name, where) for name in table}
    smallest = min(sizes, key=lambda name: sizes[name])
    if memory is None:
        return smallest
    if memory.bytes is None:
        raise InputError(
            f"{where} is set by memory class, but the driver does not report how much memory {memory.device} "
            "has. Give a value after --"
        )
    reached = [name for name, size in sizes.items() if memory.bytes >= REACHES * size]
    if not reached:
        raise InputError(
            f"{where} is set by memory class. The smallest is {smallest}, but {memory.device} has "
            f"{format_bytes(memory.bytes)}. Add a smaller class, give a value after --, or leave out the "
            "device (--gpus)"
        )
    return max(reached, key=lambda name: sizes[name])

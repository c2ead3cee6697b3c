"""Follows a fleet that is at work by its ledger alone, so that the commands that work on it notice nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from milabench_ng.fleet.folder import FleetFolder, is_going_on, read_fleet_ledger
from milabench_ng.fleet.ledger import FLEET_LEDGER

_EVERY_S = 1.0


def follow(folder: Path, wait: Callable[[float], object] = time.sleep) -> Iterator[FleetFolder]:
    """The fleet as it is, and again after each change of its ledger; last when nobody works on it any more.

    Raises InputError if it has no manifest, or one that is not valid.
    """
    found = FleetFolder.read(folder)
    size = _size(folder)
    yield found
    while found.going_on:
        wait(_EVERY_S)
        going_on = is_going_on(folder)  # asked first, so that what is written last is read
        before, size = size, _size(folder)
        if size != before or not going_on:
            found = msgspec.structs.replace(found, ledger=read_fleet_ledger(folder), going_on=going_on)
            yield found


def _size(folder: Path) -> int:
    return os.stat(folder / FLEET_LEDGER).st_size

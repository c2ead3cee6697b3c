"""Finds what dead runs left on this node, as opposed to what live ones hold. Removes nothing: the next run does.

A live run holds a ``flock(2)`` on its groups and its scratch folder; a generator holds one next to the data set that it
makes.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng.fence.cache_groups import find_cache_groups
from milabench_ng.fence.runs import TOP, locked_top
from milabench_ng.files import is_locked
from milabench_ng.orchestrator.execution.scratch import PREFIX, scratch_parents


class Remains(msgspec.Struct, frozen=True):
    """Something on the node that belongs to a live run or was left by a dead one."""

    kind: Literal["groups", "scratch", "data"]
    path: str
    alive: bool | None
    """None if this user may not find out."""


def find_remains(parents: Sequence[str], dataroot: Path) -> tuple[Remains, ...]:
    """The groups below ``parents`` and in resctrl, the scratch folders, the half-made data sets below ``dataroot``."""
    groups = (*_groups(parents), *_cache_groups())
    scratch = (found for parent in (*scratch_parents(), dataroot) for found in _scratch(parent))
    return (*groups, *scratch, *_half_made(dataroot))


def _groups(parents: Sequence[str]) -> Iterator[Remains]:
    """List runs' groups, holding the parent's lock as a starting run does until its groups are locked."""
    runs = sorted(Path(parents[0], TOP).glob("*/")) if parents else []
    if not runs:
        return
    with locked_top(parents[0], fcntl.LOCK_SH):
        for run in runs:
            if run.is_dir():
                yield Remains("groups", str(run), _held(run))


def _cache_groups() -> Iterator[Remains]:
    for path, alive in find_cache_groups().items():
        yield Remains("groups", path, alive)


def _scratch(parent: Path) -> Iterator[Remains]:
    for folder in sorted(parent.glob(f"{PREFIX}*")):
        if folder.is_dir() and not folder.is_symlink():
            yield Remains("scratch", str(folder), _held(folder))


def _half_made(dataroot: Path) -> Iterator[Remains]:
    """List ``.mnb-<data set>-<pid>``, next to the lock ``.mnb-<data set>.lock`` of the current generator."""
    for folder in sorted([*dataroot.glob(".mnb-*-*/"), *dataroot.glob("scale-*/.mnb-*-*/")]):
        name = folder.name.removesuffix("-old").rpartition("-")[0]
        yield Remains("data", str(folder), _held(folder.with_name(f"{name}.lock")))


def _held(path: Path) -> bool | None:
    """Whether another process has an exclusive lock on ``path``; None if this user may not open it."""
    try:
        return is_locked(path)
    except PermissionError:
        return None

"""Checks, before any loader process starts, that there is enough shared memory for the batches they hand over.

A process that writes beyond the end of a full /dev/shm is killed by SIGBUS in the middle of a run, without a message.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.model.errors import InputError
from milabench_ng.model.units import format_bytes

PLACE = Path("/dev/shm")
IN_HAND = 2
"""Batches besides those that the loader processes have ready: the current one and the next one."""


def require(sample: int, batch_size: int, batches: int, tenants: int, place: Path = PLACE) -> None:
    """Raise InputError unless ``batches`` batches of samples of ``sample`` bytes fit for each of ``tenants``.

    The free space must hold this tenant's batches, and the total size everyone's: other tenants may have begun already.
    """
    try:
        state = os.statvfs(place)
    except OSError as error:
        raise InputError(
            f"loader processes need shared memory, and {place} cannot be used ({error.strerror}). Mount a tmpfs there"
        ) from None
    needed = sample * batch_size * (batches + IN_HAND)
    free, whole = state.f_bavail * state.f_frsize, state.f_blocks * state.f_frsize
    if needed > free or needed * tenants > whole:
        raise InputError(
            f"{place} is too small for the loader processes: {tenants} x {format_bytes(needed)} are needed "
            f"({batches} + {IN_HAND} batches of {batch_size} for each tenant), {format_bytes(free)} of "
            f"{format_bytes(whole)} are free. Enlarge it (docker run --shm-size=..., mount -o remount,size=...) "
            "or take fewer --workers or a smaller --batch-size"
        )


def sample_bytes(data: Dataset[Any], index: Any, collate: Callable[[list[Any]], Any] | None = None) -> int:
    """Bytes of the tensors in the sample at ``index``, or in the batch that ``collate`` makes of it alone.

    The sample is made here; the state of random generators is restored.
    """
    with torch.random.fork_rng(devices=[]):
        return tensor_bytes(collate([data[index]]) if collate else data[index])


def tensor_bytes(value: Any) -> int:
    """Bytes of the tensors in ``value``, also within lists, tuples and dicts; a number becomes 8 in a batch."""
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return sum(map(tensor_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(tensor_bytes, value))
    return 8

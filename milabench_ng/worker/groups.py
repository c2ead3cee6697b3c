"""Process groups that come and go in one process, also after one that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]

from milabench_ng.records.links import Backend, MeetingPlan

_GLOO_WAITS = 5
"""Gloo tries to connect for so many times its limit for messages."""


@contextmanager
def group_of(
    store: Store, plan: MeetingPlan, backend: Backend, rank: int, ranks: int, device: torch.device
) -> Iterator[None]:
    """The default group of so many ranks, once all of them are there. Raises RuntimeError if one does not come."""
    try:
        store.set(f"here/{rank}", "")
        store.wait([f"here/{one}" for one in range(ranks)], timedelta(seconds=plan.message_s))
        dist.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=patience_s(plan, backend)),
            device_id=device if backend == "nccl" else None,
        )
        yield
    finally:
        _leave()


def patience_s(plan: MeetingPlan, backend: Backend) -> float:
    """How long a message may take, so that whoever cannot connect knows in half of a round. Pure."""
    return min(plan.message_s, plan.round_s / 2 / _GLOO_WAITS) if backend == "gloo" else plan.message_s


def _leave() -> None:
    """Leave the group, and one that failed as if it had never been.

    torch numbers groups, and counts one that failed to begin: the next one would have another name here than elsewhere,
    and nobody would meet. The end of a group sets the count back, so that one of this process alone begins and ends.
    """
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()

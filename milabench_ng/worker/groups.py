"""Process groups that come and go in one process, also after one that failed."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]


def leave() -> None:
    """Leave the group that failed, as if it had never been.

    torch numbers groups, and counts one that failed to begin: the next one would have another name here than elsewhere,
    and nobody would meet. The end of a group sets the count back, so that one of this process alone begins and ends.
    """
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()

"""One rank of a launch over several nodes: the workload as it is, whose ranks meet and agree through a store.

No fence, and no orchestrator beside it. The launch ends as soon as rank 0 has a full window: it writes the last step
into the store, where all ranks look for it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from milabench_ng.bench import Bench
from milabench_ng.bench.channel import HEADROOM
from milabench_ng.bench.options import split
from milabench_ng.model.catalogue import Scalar
from milabench_ng.model.errors import MnbError
from milabench_ng.model.events import Checked, Event, Full, Slice
from milabench_ng.model.memory_classes import DeviceMemory, choose_entries
from milabench_ng.model.plain import short
from milabench_ng.model.units import counted
from milabench_ng.records.links import LONGEST, MeetingPlan, NodesLaunch, RankResult, Turn
from milabench_ng.records.window import WindowRule
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.worker.groups import group_of

_LOOK_S = 0.05
"""How often a rank asks the store for the last step."""
_AHEAD_S = 1.0
"""Time between the decision and the last step, which is at least `HEADROOM` steps later: all ranks do as many steps, so
that each of them has looked by then."""


class StoreChannel:
    """A channel of a rank whose orchestrator is rank 0."""

    def __init__(self, store: Store, rank: int) -> None:
        self.slices: list[Slice] = []
        self.steps = 0
        """All that were done; the last few of them may be in no slice."""
        self.wrong = 0
        """Checks of its work that found something else than it must come to."""
        self._store = store
        self._rank = rank
        self._full = False
        self._last: int | None = None
        self._looked_s = 0.0
        self._started_s = 0.0

    def send(self, event: Event) -> None:
        """Note slices, what was wrong, and that the window is full."""
        if isinstance(event, Slice):
            self.slices.append(event)
        if isinstance(event, Checked):
            self.wrong = event.wrong
        self._full = self._full or isinstance(event, Full)

    def wait_for_start(self) -> None:
        dist.barrier()
        self._started_s = time.monotonic()

    def poll(self, steps: int) -> None:
        """Rank 0 decides on the last step once its window is full."""
        if self._rank == 0 and self._full and self._last is None:
            pace = steps / max(1e-6, time.monotonic() - self._started_s)
            self._last = steps + HEADROOM + math.ceil(_AHEAD_S * pace)
            self._store.set("last", str(self._last))

    def ended(self, steps: int) -> bool:
        """Whether the last step is done."""
        self.steps = steps
        if self._last is None and self._rank and time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            if self._store.check(["last"]):
                self._last = int(self._store.get("last"))
                if steps > self._last:
                    raise RuntimeError(f"this rank heard of the last step, {self._last}, in step {steps}")
        return self._last is not None and steps >= self._last


def over_nodes(
    store: Store, plan: MeetingPlan, turn: Turn, launch: NodesLaunch, rank: int, ranks: int, place: int
) -> RankResult:
    """Run a launch as one of its ranks."""
    blank = RankResult(round=0, group=0, device=place, node="", backend=turn.backend, ranks=ranks)
    cuda = turn.backend == "nccl"
    device = torch.device("cuda", place) if cuda else torch.device("cpu")
    # A wait for each message would measure something else; a rank with a dead peer ends when its time is over.
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "0"
    channel = StoreChannel(store, rank)
    rule = WindowRule(settle_s=min(2.0, launch.window_s), length_s=launch.window_s)
    try:
        if cuda:
            torch.cuda.set_device(device)
        with group_of(store, plan, turn.backend, rank, ranks, device):
            common, own = split(_chosen(launch, device))
            bench = Bench(
                device=device,
                options=common,
                rule=rule,
                channel=channel,
                data_set=None,
                data_path=None,
                tenant=rank,
                rank=rank,
                tenants=ranks,
                mark_interval_s=0.0,
            )
            builtin_workloads()[launch.workload](bench, **own)
    except (RuntimeError, ValueError, MnbError) as error:
        return msgspec.structs.replace(blank, problem=short(f"{error}")[:LONGEST] or type(error).__name__)
    if channel.wrong:
        return msgspec.structs.replace(blank, problem=f"{counted(channel.wrong, 'check')} found wrong results")
    if not channel.slices:
        return msgspec.structs.replace(blank, problem="it did no step")
    return msgspec.structs.replace(blank, rate=_rate(channel.slices, rule.settle_s), steps=channel.steps)


def _chosen(launch: NodesLaunch, device: torch.device) -> dict[str, Scalar | None]:
    """The options of a launch; of those by memory class, the entries for the smallest device of all ranks."""
    tables = {name: value for name, value in launch.arguments.items() if isinstance(value, dict)}
    memory = None
    if tables and device.type == "cuda":
        smallest = torch.tensor([torch.cuda.get_device_properties(device).total_memory], device=device)
        dist.all_reduce(smallest, dist.ReduceOp.MIN)
        memory = DeviceMemory(device="the smallest device of all nodes", bytes=int(smallest.item()))
    chosen, _ = choose_entries(tables, memory, launch.test)
    return {name: chosen[name] if isinstance(value, dict) else value for name, value in launch.arguments.items()}


def _rate(slices: Sequence[Slice], settle_s: float) -> float:
    """Items per second after settling."""
    counted = [one for one in slices if one.start_s >= slices[0].start_s + settle_s]
    return sum(one.count for one in counted) / math.fsum(one.length_s for one in counted)

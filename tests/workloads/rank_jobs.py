"""What the ranks of a process group do in tests; light, since every rank imports it anew."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple, get_args
from unittest import mock

import torch
import torch.distributed as dist
from launching import run
from recording import Recording, bench_on
from torch.nn.parallel import DistributedDataParallel

from milabench_ng.bench import Bench
from milabench_ng.model.events import Checked, Done, Mismatch, Slice
from milabench_ng.workloads.cv.cv_train_ddp import cv_train_ddp
from milabench_ng.workloads.models.deep_cross import DeepCross, click_loss
from milabench_ng.workloads.models.sharded_tables import ShardedTables
from milabench_ng.workloads.models.transducer import Histories, Transducer, last_event_loss
from milabench_ng.workloads.modern.collectives import collectives
from milabench_ng.workloads.modern.collectives_sweep import Operation, collectives_sweep
from milabench_ng.workloads.modern.dlrm import dlrm
from milabench_ng.workloads.modern.hstu import hstu
from milabench_ng.workloads.stress.burn_links import burn_links

SMALL_DLRM = {
    "batch_size": 16,
    "tables": 4,
    "rows": 500,
    "width": 16,
    "learning_rate": 1e-3,
    "table_rate": 0.01,
}
"""Of two ranks: four tables of 1000 x 16."""
SMALL_HSTU = {
    "batch_size": 4,
    "length": 20,
    "median": 12,
    "layers": 2,
    "width": 16,
    "heads": 2,
    "head_size": 8,
    "block": 8,
    "rows": 500,
    "learning_rate": 1e-3,
    "table_rate": 0.01,
}


OPERATIONS: tuple[Operation, ...] = get_args(Operation)


def verdict(channel: Recording) -> tuple[list[tuple[str, int]], Checked]:
    """What was wrong in which check, and how much was checked."""
    return [(one.what, one.check) for one in channel.all(Mismatch)], channel.all(Checked)[-1]


def messages(rank: int) -> Recording:
    return run(collectives, 2, rank=rank, small_kib=1, large_mib=1, block_mib=1, exchange_mib=1)


def talk(rank: int) -> tuple[int, list[dict[str, float]]]:
    channel = messages(rank)
    return channel.one(Done).count, [event.notes for event in channel.all(Slice)]


def travelling(steps: int, rank: int) -> tuple[int, list[tuple[str, int]], Checked]:
    channel = run(burn_links, steps, rank=rank, mib=1)
    return channel.one(Done).count, *verdict(channel)


def travel(rank: int) -> tuple[int, list[tuple[str, int]], Checked]:
    """Words go from rank to rank, and nothing happens to them."""
    return travelling(2, rank)


def damage(rank: int) -> tuple[int, list[tuple[str, int]], Checked]:
    """A bit of what rank 1 receives first, in the second step, has flipped: it is of rank 0's words."""
    exchange, count = dist.all_to_all_single, itertools.count()

    def badly(out: torch.Tensor, sent: torch.Tensor) -> None:
        exchange(out, sent)
        if next(count) == 16 and rank == 1:
            out[0, 5] ^= 1 << 40

    with mock.patch.object(dist, "all_to_all_single", badly):
        return travelling(3, rank)


class Swept(NamedTuple):
    """What a sweep told."""

    count: int
    notes: list[dict[str, float]]
    wrong: list[tuple[str, int]]
    checked: Checked


def swept(operation: Operation, rank: int) -> Swept:
    channel = run(collectives_sweep, 2, rank=rank, operation=operation, largest_mib=1)
    return Swept(channel.one(Done).count, [one.notes for one in channel.all(Slice)], *verdict(channel))


def sweep_wrongly(rank: int) -> Swept:
    """Rank 1 gets the parts of messages of 64 bytes in the wrong place."""
    exchange = dist.all_to_all_single

    def wrongly(out: torch.Tensor, sent: torch.Tensor) -> None:
        exchange(out, sent)
        if rank == 1 and out.numel() == 16:
            out.copy_(out.roll(8))

    with mock.patch.object(dist, "all_to_all_single", wrongly):
        return swept("all_to_all", rank)


def lie(rank: int) -> tuple[list[tuple[str, int]], Checked]:
    """Rank 1 gathers its own part into a block wrongly, as a bad link would, and sums it up so."""
    gather = dist.all_gather_into_tensor

    def wrongly(out: torch.Tensor, part: torch.Tensor) -> None:
        gather(out, part)
        if rank == 1:
            out[len(part)] += 1

    with mock.patch.object(dist, "all_gather_into_tensor", wrongly):
        return verdict(messages(rank))


def pictures(rank: int) -> dict[str, Any]:
    """Two steps of a small picture network, whose ranks have batches of their own in the second."""
    placed: list[torch.nn.Module] = []

    def watch(bench: Bench) -> None:
        place = bench.place
        bench.place = lambda module: placed.append(place(module)) or placed[0]  # type: ignore[method-assign,assignment]

    given = {"arch": "mobilenet_v3_large", "batch_size": 2, "width": 64, "height": 64, "learning_rate": 1e-3}
    channel = run(cv_train_ddp, 2, None, watch, rank=rank, tenant=rank, **given)
    return {
        "count": channel.one(Done).count,
        "losses": channel.losses,
        "weights": [weight.sum().item() for weight in placed[0].parameters()],
    }


def click_step(rank: int, ranks: int, precision: str) -> dict[str, list[Any]]:
    """Losses and weights of three steps of a small recommender, of which this rank has its part."""
    torch.manual_seed(7)
    clicks = torch.randint(1 << 31, (8, 1 + 3 + 4 * 2), dtype=torch.int32)
    clicks[:, 0] %= 2
    clicks[:, 1:4] %= 10
    tables = 0.1 * torch.randn(4, 10, 16)
    bench = bench_on(Recording(), precision=precision)
    model: torch.nn.Module = bench.place(DeepCross(3, 4, 16))
    torch.nn.init.normal_(model.head.weight, std=0.1)  # otherwise nothing but the head learns in the first step
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dtype = model.head.weight.dtype
    whole, model = model, DistributedDataParallel(model) if ranks > 1 else model
    own, mine = slice(rank * 4 // ranks, (rank + 1) * 4 // ranks), slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    embed = ShardedTables(4 // ranks, 10, 16, 0.5, bench.device, ranks)
    embed.rows.copy_(tables[own].flatten(0, 1))
    ids = clicks[:, 4:].view(8, 4, 2)[:, own]
    losses = []
    for _ in range(3):
        loss = click_loss(model, clicks[mine, 1:4], embed(ids, dtype), clicks[mine, 0])
        bench.step(loss, optimizer)
        losses.append(loss.detach())
    kept = {"losses": torch.stack(losses), "rows": embed.rows, "narrow": whole.narrow[0].weight.detach()}
    return {name: values.tolist() for name, values in kept.items()}


def sharded(rank: int) -> dict[str, list[Any]]:
    return click_step(rank, 2, "fp32")


def sharded_bf16(rank: int) -> dict[str, list[Any]]:
    return click_step(rank, 2, "bf16_master")


def recommend(place: Path, rank: int) -> tuple[list[float | None], int]:
    channel = run(dlrm, 2, lambda _: place, rank=rank, **SMALL_DLRM)
    return channel.losses, channel.one(Done).count


def history_step(rank: int, ranks: int = 2) -> dict[str, list[Any]]:
    """Losses and the own columns of the table of three steps of a small HSTU; each half of the users is alike."""
    torch.manual_seed(7)
    lengths = [5, 3]
    ids = torch.randint(1 << 31, (2 * sum(lengths), 1, 1), dtype=torch.int32)
    actions, listened = torch.randint(4, (2, sum(lengths))), torch.tensor([[True, False], [False, False]])
    table = torch.randn(10, 16)
    model: torch.nn.Module = Transducer(layers=2, width=16, heads=2, head_size=8, actions=4, length=8)
    torch.nn.init.normal_(model.get_submodule("head").weight, std=0.1)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model = DistributedDataParallel(model) if ranks > 1 else model
    embed = ShardedTables(1, 10, 16 // ranks, 0.5, torch.device("cpu"), ranks)
    embed.rows.copy_(table[:, rank * 16 // ranks : (rank + 1) * 16 // ranks])
    own = slice(rank * 2 // ranks, (rank + 1) * 2 // ranks)
    histories = Histories(lengths, 4, torch.device("cpu"))
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        embedded = embed(ids, torch.float32).flatten(1).unflatten(0, (2 // ranks, -1))
        loss = torch.stack(
            [
                last_event_loss(model(part, did, histories), wanted)
                for part, did, wanted in zip(embedded, actions[own], listened[own], strict=True)
            ]
        ).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses).tolist(), "rows": embed.rows.tolist()}


def read_histories(rank: int) -> tuple[list[float | None], int]:
    channel = run(hstu, 2, rank=rank, **SMALL_HSTU)
    return channel.losses, channel.one(Done).count

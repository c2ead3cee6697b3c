"""A recommender whose embedding tables fill the memory of all devices together."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, FirstLoss, Rate, workload
from milabench_ng.datasets.tables.clicks import COUNTS, FEATURES, HOT, ClickRows, Clicks
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.deep_cross import BOTTOM, CROSSES, RANK, TOP, DeepCross, click_loss
from milabench_ng.workloads.models.sharded_tables import ShardedTables
from milabench_ng.workloads.modern.work_formulas import flop_rates

INNER = COUNTS * BOTTOM[0] + BOTTOM[0] * BOTTOM[1] + TOP[0] * TOP[1] + TOP[1] * TOP[2] + TOP[2] * TOP[3] + TOP[3]
"""Weights whose number no option changes."""
FLOP = f"6 * ((tables + 1) * width * {2 * CROSSES * RANK + TOP[0]} + {BOTTOM[1]} * width + {INNER})"
"""Of a sample, forward and backward: six per weight."""
GATHERED = f"tables * {HOT} * width * 4"
"""Bytes of the rows of a sample."""


def equal_shares(*, tables: int, devices: int) -> None:
    """Raise InputError unless the tables are those of the clicks, and as many on each device."""
    if tables % devices or tables > FEATURES:
        raise InputError(
            f"--tables: expected a multiple of the number of devices ({devices}), at most {FEATURES}, got {tables}"
        )


@workload(
    unit="samples",
    data=Clicks,
    precision="bf16_master",
    distributed=True,
    bound="gpu-memory",
    derived=(
        *flop_rates(FLOP),
        Derived("GB/s gathered", f"rate * {GATHERED} / 1e9"),
        Derived("ms/step", "1000 * batch_size / rate"),
    ),
    first_loss=FirstLoss("log(2)"),
    fits=equal_shares,
)
def dlrm(
    bench: Bench,
    *,
    batch_size: Count = 8192,
    tables: Count = FEATURES,
    rows: Count = 1_000_000,
    width: Count = 128,
    learning_rate: Rate = 1e-3,
    table_rate: Rate = 0.01,
) -> None:
    """Train DCNv2 with embedding tables over all devices (arXiv:2008.13535): bound by memory, or by the links.

    14,995,201 parameters, and 24 tables of rows x devices x 128, each on one device; a sample names 8 rows of each,
    uniformly. The dense part is data-parallel: binary cross entropy, Adagrad, as MLPerf has it: its steps get smaller,
    so that many epochs of the same clicks do no harm. The tables are in fp32, with SGD. Two all-to-alls in a step carry
    the sums of rows and their gradients. An item is one sample of one rank. Timed: copy of the clicks from page-locked
    memory, look-up, all-to-all, forward, backward, all-reduce, step.

    Options:
        batch_size: samples per step and rank.
        tables: a multiple of the devices; at most 24.
        rows: of a table, for each device.
        width: of an embedding.
        learning_rate: of Adagrad.
        table_rate: learning rate of the tables.
    """
    model = bench.place(DeepCross(COUNTS, tables, width))
    optimizer = torch.optim.Adagrad(model.parameters(), learning_rate)
    dtype = next(model.parameters()).dtype
    forward, ranks = bench.spread(model), bench.ranks
    embed = ShardedTables(tables // ranks, rows * ranks, width, table_rate, bench.device, ranks)
    batches = pinned(bench, bench.data(), batch_size, tables)
    for clicks, ids in bench.measure(batches, count=batch_size):
        bench.step(click_loss(forward, clicks[:, 1:], embed(ids, dtype), clicks[:, 0]), optimizer)


def pinned(bench: Bench, clicks: ClickRows, batch_size: int, tables: int) -> list[tuple[Tensor, Tensor]]:
    """Batches for a rank: label and counts [N, 14] of its samples; of all ranks', ids [ranks * N, tables of it, 8].

    In page-locked memory if there is a GPU. Raises InputError for too few clicks.
    """
    ranks = bench.ranks
    whole = len(clicks) // (batch_size * ranks)
    if not whole:
        raise InputError(
            f"--batch-size {batch_size}: {ranks} ranks need {batch_size * ranks:,} clicks, there are {len(clicks):,}"
        )
    rows = clicks.rows[: whole * ranks * batch_size].reshape(whole, ranks, batch_size, -1)
    own = slice(bench.rank * (tables // ranks), (bench.rank + 1) * (tables // ranks))
    made = []
    for batch in rows:
        ids = batch[..., 1 + COUNTS :].reshape(ranks * batch_size, FEATURES, HOT)[:, own]
        parts = (torch.from_numpy(np.ascontiguousarray(part)) for part in (batch[bench.rank, :, : 1 + COUNTS], ids))
        label, categories = (part.pin_memory() if bench.device.type == "cuda" else part for part in parts)
        made.append((label, categories))
    return made

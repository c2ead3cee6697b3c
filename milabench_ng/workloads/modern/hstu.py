"""A generative recommender that attends to long histories, with an embedding table over all devices."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, FirstLoss, Rate, workload
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.sharded_tables import ShardedTables
from milabench_ng.workloads.models.transducer import Histories, Transducer, last_event_loss
from milabench_ng.workloads.modern.work_formulas import flop_rates

MEDIAN, MEAN = 2695, 4763
"""Events of a user of Yambda-5b (arXiv:2505.22238), as MLPerf's reference counts them."""
SPREAD = math.sqrt(2 * math.log(MEAN / MEDIAN))
"""Of the logarithm, if they are log-normal."""
SHARES = (0.613, 0.359, 0.028)
"""Of its events: listened to, skipped, and all else. The action that is to be predicted is a fourth kind."""
LISTENED = 0.63
"""Share of what was listened to among what was played: the probability of the label."""
BATCHES = 64
MOMENTS, CLIP = (0.95, 0.999), 1.0
"""Of Adam, and the largest norm of all gradients."""
FLOP = "(layers*heads*head_size*(30*width*events+12*pairs)/batch_size+6*width*(width+1))"
"""Of a sample: six per event and weight, of which a layer has 5 * width * heads * head_size, and twelve per number of
each pair that attends."""


def equal_columns(*, width: int, devices: int) -> None:
    """Raise InputError unless each device has as many columns of the table."""
    if width % devices:
        raise InputError(f"--width {width}: expected a multiple of the number of devices ({devices})")


@workload(
    unit="samples",
    precision="bf16_master",
    distributed=True,
    bound="gpu-memory",
    notes=("events", "pairs"),
    derived=(
        *flop_rates(FLOP),
        Derived("events/s", "rate * events / batch_size"),
        Derived("GB/s gathered", "rate * events / batch_size * width * 4 / 1e9"),
        Derived("ms/step", "1000 * batch_size / rate"),
    ),
    first_loss=FirstLoss("log(2)"),
    fits=equal_columns,
)
def hstu(
    bench: Bench,
    *,
    batch_size: Count = 32,
    length: Count = 4096,
    median: Count = MEDIAN,
    layers: Count = 3,
    width: Count = 512,
    heads: Count = 4,
    head_size: Count = 128,
    block: Count = 256,
    rows: Count = 6_000_000,
    learning_rate: Rate = 1e-3,
    table_rate: Rate = 0.01,
) -> None:
    """Train HSTU on long histories of users (arXiv:2402.17152): bound by memory, which holds the attention's weights.

    The shapes are those of MLPerf Training 6.1 (DLRMv4): 4,224,513 parameters, and a table of rows x devices x 512 in
    fp32. A sample is the history of a user, and whether the user listened to its last item: binary cross entropy, Adam,
    gradients clipped at 1. Lengths are log-normal, and cut: a step has the quantiles, so that steps are equal, with
    83,629 events each. An event names a row, uniformly, and what the user did. Each device has some columns of all
    rows, with SGD: two all-to-alls in a step carry them and their gradients. An item is one sample of one rank. Timed:
    copy of the events from page-locked memory, look-up, all-to-all, forward, backward, all-reduce, step.

    Options:
        batch_size: users per step and rank.
        length: the most events of a user.
        median: of the events of a user, before they are cut.
        layers: of attention.
        width: of an embedding and of all layers, a multiple of the devices.
        heads: of the attention.
        head_size: width of a head.
        block: events whose attention is computed at once.
        rows: of the table, for each device.
        learning_rate: of Adam.
        table_rate: learning rate of the table.
    """
    lengths = quantiles(batch_size, median, length)
    histories = Histories(lengths, block, bench.device)
    model = bench.place(Transducer(layers, width, heads, head_size, len(SHARES) + 1, histories.length))
    optimizer = torch.optim.Adam(model.parameters(), learning_rate, betas=MOMENTS, fused=True)
    dtype = next(model.parameters()).dtype
    forward, ranks = bench.spread(model), bench.ranks
    embed = ShardedTables(1, rows * ranks, width // ranks, table_rate, bench.device, ranks)
    work = {"events": float(sum(lengths)), "pairs": sum(own * (own + 1) / 2 for own in lengths)}
    for ids, actions, listened in bench.measure(generated(bench, lengths), count=batch_size):
        embedded = embed(ids, dtype).flatten(1)
        bench.step(last_event_loss(forward(embedded, actions, histories), listened), optimizer, clip_norm=CLIP)
        for name, value in work.items():
            bench.notes.add(name, value)


def quantiles(users: int, median: int, length: int) -> list[int]:
    """Events of so many users, the longest history first, at most ``length``."""
    logarithms = NormalDist(math.log(median), SPREAD)
    drawn = (math.exp(logarithms.inv_cdf((user + 0.5) / users)) for user in reversed(range(users)))
    return [min(length, max(1, round(each))) for each in drawn]


def generated(bench: Bench, lengths: list[int]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches for a rank: of all ranks' events, ids [ranks * E, 1, 1]; actions [E] and labels [users] of its own.

    In page-locked memory if there is a GPU.
    """
    drawn, ranks = np.random.default_rng(bench.seed), bench.ranks
    events, last = sum(lengths), np.cumsum(lengths) - 1
    made = []
    for _ in range(BATCHES):
        ids = drawn.integers(1 << 31, size=(ranks * events, 1, 1), dtype=np.int32)
        actions = drawn.choice(len(SHARES), size=(ranks, events), p=SHARES)
        actions[:, last] = len(SHARES)
        listened = drawn.random((ranks, len(lengths))) < LISTENED
        parts = (torch.from_numpy(part) for part in (ids, actions[bench.rank], listened[bench.rank]))
        of_ids, of_actions, of_listened = (part.pin_memory() if bench.device.type == "cuda" else part for part in parts)
        made.append((of_ids, of_actions, of_listened))
    return made

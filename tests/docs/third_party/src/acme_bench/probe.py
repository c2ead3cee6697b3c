"""A linear classifier on stored image features."""

import torch
from torch import nn
from torch.nn import functional as F

from acme_bench.features import CLASSES, WIDTH, Features
from milabench_ng.bench import Bench, Count, Rate, workload


@workload(unit="vectors", data=Features, pace_only=("pinned",))
def probe(bench: Bench, *, batch_size: Count = 256, learning_rate: Rate = 0.01, pinned: bool = True) -> None:
    """Train a linear probe on image features (Alain & Bengio, arXiv:1610.01644).

    One linear layer, cross entropy, SGD. An item is one vector of 512 numbers. Timed: the wait for the loader
    processes, copy, forward, backward, step.

    Options:
        batch_size: vectors per step.
        learning_rate: of SGD.
        pinned: load into pinned memory, from where copies are faster.
    """
    model = bench.place(nn.Linear(WIDTH, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for vectors, labels in bench.measure(bench.loader(batch_size, pin_memory=pinned)):
        bench.step(F.cross_entropy(model(vectors), labels), optimizer)

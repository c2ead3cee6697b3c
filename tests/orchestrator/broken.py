"""Workloads that go wrong, named by path in the tests' profiles."""

from __future__ import annotations

import time
from itertools import repeat

import torch
from torch import nn

from milabench_ng.bench import Bench, workload


@workload(unit="steps")
def not_a_number(bench: Bench) -> None:
    """A loss that is not finite. An item is a step. Timed: one optimizer step."""
    model = bench.place(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in bench.measure(repeat(None), count=1):
        time.sleep(0.01)
        bench.step(model(torch.ones(1, 1)).sum() * float("nan"), optimizer)


@workload(unit="steps")
def raises(bench: Bench, *, after: int = 20) -> None:
    """An exception in the middle. An item is a step. Timed: a short sleep.

    Options:
        after: steps.
    """
    for step, _ in enumerate(bench.measure(repeat(None), count=1)):
        time.sleep(0.05)
        if step == after:
            raise RuntimeError("the planned accident")


@workload(unit="steps")
def slow(bench: Bench) -> None:
    """A step of a second. An item is a step. Timed: the sleep."""
    for _ in bench.measure(repeat(None), count=1):
        time.sleep(1)


@workload(unit="steps")
def steady(bench: Bench) -> None:
    """Steps of 10 ms. An item is a step. Timed: the sleep."""
    for _ in bench.measure(repeat(None), count=1):
        time.sleep(0.01)

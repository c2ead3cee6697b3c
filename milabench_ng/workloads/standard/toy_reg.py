"""Polynomial regression with five parameters: the latency of a step, nothing else."""

from itertools import repeat

import torch
from torch import nn
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Legacy2020, Rate, workload


@workload(
    unit="samples",
    bound="launch",
    ram_gib=0.5,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.polynome:main",
            options={"poly_degree": "degree"},
            implied={"": {"batch_size": 64}},
        ),
    ),
)
def toy_reg(bench: Bench, *, degree: Count = 4, batch_size: Count = 256, learning_rate: Rate = 0.01) -> None:
    """Fit a polynomial by stochastic gradient descent: bound by launch latency and one CPU core.

    One linear layer on the powers x, x^2 ... of a standard normal x; smooth L1 loss; plain SGD. An item is one sample.
    Timed: making the samples on the CPU, their copy to the device, forward, backward, step. As in 2020, the host reads
    the loss in every step: the test measures this round trip.

    Options:
        degree: degree of the polynomial; the model has one weight per power and a bias.
        batch_size: samples per step.
        learning_rate: of SGD.
    """
    weights = torch.randn(degree, 1) * 5
    bias = torch.randn(1) * 5
    model = bench.place(nn.Linear(degree, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for _ in bench.measure(repeat(None), count=batch_size):
        x = torch.randn(batch_size)
        powers = torch.stack([x**power for power in range(1, degree + 1)], 1)
        target = powers @ weights + bias
        loss = F.smooth_l1_loss(model(bench.to_device(powers)), bench.to_device(target))
        loss.item()
        bench.step(loss, optimizer)

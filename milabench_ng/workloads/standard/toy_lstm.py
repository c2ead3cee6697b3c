"""Two LSTM cells that learn sine waves, one kernel launch after another."""

from itertools import repeat
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Legacy2020, Rate, workload

HELD_OUT = 3


class Sequence(nn.Module):
    """LSTMCell(1, h), LSTMCell(h, h), Linear(h, 1), unrolled in Python over the time steps."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.first = nn.LSTMCell(1, hidden)
        self.second = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, waves: Tensor) -> Tensor:
        """Waves [N, T] to predictions [N, T]."""
        zero = waves.new_zeros(len(waves), self.hidden)
        first, second = (zero, zero), (zero, zero)
        outputs = []
        for value in waves.unsqueeze(2).unbind(1):
            first = self.first(value, first)
            second = self.second(first[0], second)
            outputs.append(self.linear(second[0]))
        return torch.cat(outputs, dim=1)


def sine_waves(samples: int, length: int = 1000, period: int = 20) -> Tensor:
    """``samples`` sine waves [samples, length], ``sin((t + phase) / period)``, each with its own phase."""
    phase = torch.randint(-4 * period, 4 * period, (samples, 1))
    return torch.sin((torch.arange(length) + phase) / period)


@workload(
    unit="sequences",
    most_items="samples",
    bound="launch",
    ram_gib=0.5,
    classic_factor=100 / 97,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.sine_wave:main",
            implied={"dtype=float32": {}, "dtype=float16": {"precision": "half"}},
        ),
    ),
)
def toy_lstm(
    bench: Bench, *, samples: Annotated[int, Meta(gt=HELD_OUT)] = 100, hidden: Count = 51, learning_rate: Rate = 0.01
) -> None:
    """Predict sine waves one step ahead with two LSTM cells: bound by launch latency.

    LSTMCell(1, 51), LSTMCell(51, 51), Linear(51, 1), unrolled in Python over 999 steps; mean squared error; SGD on the
    full batch, which stays on the device. An item is one sequence; the network is trained on all but three of the
    samples (2020 counted all). Timed: forward, backward, step.

    Options:
        samples: sine waves of 1,000 points; three of them are held out.
        hidden: width of the cells.
        learning_rate: of SGD.
    """
    waves = sine_waves(samples)[HELD_OUT:].to(bench.device)
    model = bench.place(Sequence(hidden))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for batch in bench.measure(repeat(waves), count=samples - HELD_OUT):
        bench.step(F.mse_loss(model(batch[:, :-1]), batch[:, 1:]), optimizer)

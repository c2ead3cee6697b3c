"""Recommendation with everything on the device: ratings, sampling and training."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Derived, Fraction, Rate, WholeNumber, workload
from milabench_ng.datasets.tables.ml_20m import MovieLens, Ratings
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.neumf import NeuMF

WIDTHS = (256, 256, 128, 64)
"""Of the perceptron."""


class DeviceEpochs:
    """Batches of users [N], items [N] and labels [N] of epochs that are drawn on the device.

    An epoch is every rating once and, for each, items drawn uniformly for the same user, which may be rated; shuffled.
    """

    def __init__(self, ratings: Ratings, batch_size: int, negatives: int, device: torch.device) -> None:
        """Raises InputError if an epoch has no whole batch."""
        self.users, self.items = (
            torch.from_numpy(part.astype(np.int64)).to(device) for part in np.divmod(ratings.pairs, ratings.items)
        )
        self.known = ratings.items
        self.batch_size = batch_size
        self.negatives = negatives
        samples = len(ratings) * (1 + negatives)
        if batch_size > samples:
            raise InputError(
                f"--batch-size {batch_size}: an epoch has {samples} samples. Use at most as many, or a larger "
                "data scale"
            )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """One epoch; its last samples, too few for a batch, are left out."""
        users = self.users.repeat(1 + self.negatives)
        drawn = torch.randint(self.known, (self.negatives * len(self.items),), device=self.items.device)
        items = torch.cat((self.items, drawn))
        labels = (torch.arange(len(users), device=users.device) < len(self.items)).float()
        mixed = torch.randperm(len(users), device=users.device)
        parts = (torch.split(part[mixed], self.batch_size) for part in (users, items, labels))
        return (batch for batch in zip(*parts, strict=True) if len(batch[0]) == self.batch_size)


@workload(
    unit="samples",
    data=MovieLens,
    distributed="if several",
    bound="gpu-memory",
    auto_batch=True,
    derived=(Derived("ms/step", "1000 * batch_size / rate"),),
)
def ncf(
    bench: Bench,
    *,
    batch_size: Count = 1_280_000,
    factors: Count = 64,
    dropout: Fraction = 0.5,
    negatives: WholeNumber = 4,
    learning_rate: Rate = 4.5e-3,
) -> None:
    """Recommend films with NeuMF (He et al., arXiv:1708.05031), all on the device: bound by its memory.

    The network of `recom`, 31,832,577 parameters, with dropout; binary cross entropy; Adam in its fused form with
    betas of 0.25 and 0.5. An item is one sample, a rating or an item drawn for the same user. Timed: drawing and
    shuffling of all epochs but the first, 99 million samples each; forward, backward, step. The rest of an epoch that
    fills no batch is left out and does not count.

    Options:
        batch_size: samples per step.
        factors: width of the embeddings that are multiplied.
        dropout: probability, after each layer of the perceptron.
        negatives: items drawn for each rating.
        learning_rate: of Adam.
    """
    ratings = bench.data()
    epochs = DeviceEpochs(ratings, batch_size, negatives, bench.device)
    model = bench.place(NeuMF(ratings.users, ratings.items, factors, WIDTHS, dropout))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.25, 0.5), fused=True)
    forward = bench.spread(model)
    for users, items, labels in bench.measure(epochs, count=batch_size):
        bench.step(F.binary_cross_entropy_with_logits(forward(users, items), labels), optimizer)

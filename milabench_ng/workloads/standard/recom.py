"""Recommendation by neural collaborative filtering: large embedding tables, sampled negatives."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset, Sampler

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.datasets.base import random_stream
from milabench_ng.datasets.shuffled import shuffled
from milabench_ng.datasets.tables.ml_20m import MovieLens, Ratings
from milabench_ng.workloads.models.neumf import NeuMF

HANDED_OVER = 16
"""Batches that a loader process hands over at once.

Taking each separately costs an H200 a fifth of a step's time (docs/measurements.md), since it shares Python's lock with
the kernel launches.
"""


class Samples(Dataset[Tensor]):
    """Batches of ratings and, for each, items that the same user has not rated: int32 [N, 3], user, item and label."""

    def __init__(self, ratings: Ratings, batch_size: int, negatives: int) -> None:
        self.ratings = ratings
        self.batch_size = batch_size
        self.each = 1 + negatives
        self.length = len(ratings) * self.each

    def __getitem__(self, asked: tuple[int, range]) -> Tensor:
        """The batches that begin at the given places in the epoch of a key: ``(key, places)``."""
        key, places = asked
        return torch.cat([self.batch(key, first) for first in places])

    def batch(self, key: int, first: int) -> Tensor:
        """The batch that begins at a place in the epoch of a key."""
        places = shuffled(np.arange(first, first + self.batch_size), self.length, key)
        users, items = np.divmod(self.ratings.pairs[places // self.each], self.ratings.items)
        negative = np.flatnonzero(places % self.each)
        rng = random_stream(key, first)
        while len(negative):
            items[negative] = rng.integers(0, self.ratings.items, len(negative))
            negative = negative[self.ratings.contain(users[negative] * self.ratings.items + items[negative])]
        return torch.from_numpy(np.stack((users, items, places % self.each == 0), axis=1).astype(np.int32))


class Epochs(Sampler[tuple[int, range]]):
    """Indices of `Samples`: a new key each epoch, and all places where a whole batch begins, some at a time."""

    def __init__(self, samples: Samples, generator: torch.Generator) -> None:
        self.samples = samples
        self.generator = generator

    def __iter__(self) -> Iterator[tuple[int, range]]:
        key = int(torch.randint(1 << 62, (), generator=self.generator))
        places = range(0, self.samples.length - self.samples.batch_size + 1, self.samples.batch_size)
        return ((key, places[first : first + HANDED_OVER]) for first in range(0, len(places), HANDED_OVER))


class Batches:
    """The loader processes' output, batch by batch."""

    def __init__(self, handed_over: Iterable[Tensor], batch_size: int) -> None:
        self.handed_over = handed_over
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[Tensor]:
        for several in self.handed_over:
            yield from torch.split(several, self.batch_size)


@workload(
    unit="samples",
    data=MovieLens,
    bound="launch",
    ram_gib=1.0,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.recommendation:main",
            options={"_f": "factors", "_l": "learning_rate", "_n": "negatives", "negative_samples": "negatives"},
            implied={"": {"batch_size": 128, "factors": 8, "layers": "64,32,16,8", "learning_rate": 1e-3}},
            ignored=("topk", "_k"),
        ),
    ),
)
def recom(
    bench: Bench,
    *,
    batch_size: int = 2048,
    factors: int = 64,
    layers: str = "256,256,128,64",
    negatives: int = 4,
    learning_rate: float = 5e-4,
) -> None:
    """Recommend films with NeuMF (He et al., arXiv:1708.05031; MLPerf NCF): bound by kernel launches.

    31.8 million parameters, nearly all in four embedding tables with dense gradients; binary cross entropy; Adam, which
    reads and writes all of them in each step. An item is one sample, a rating or an item that the user has not rated.
    Timed: the wait for the loader processes, which sample the negatives, copy, forward, backward, step.

    Options:
        batch_size: samples per step.
        factors: width of the embeddings that are multiplied.
        layers: widths of the perceptron, separated by commas.
        negatives: unrated items for each rating.
        learning_rate: of Adam.
    """
    ratings = bench.data()
    samples = Samples(ratings, batch_size, negatives)
    handed_over = bench.loader(None, samples=samples, order=lambda generator: Epochs(samples, generator))
    model = bench.place(NeuMF(ratings.users, ratings.items, factors, [int(width) for width in layers.split(",")]))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for batch in bench.measure(Batches(handed_over, batch_size)):
        users, items, labels = batch.unbind(1)
        logits = model(users, items)
        bench.step(F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype)), optimizer)

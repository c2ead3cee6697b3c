"""Batches of sentence pairs of similar length, so that little of a batch is padding."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler

from milabench_ng.datasets.text.parallel_text import PAD
from milabench_ng.model.errors import InputError

SHARD = 80  # batches


class Buckets(Sampler[int]):
    """Whole batches of samples: shuffled, sorted by length within shards, the batches shuffled again."""

    def __init__(self, chosen: Tensor, lengths: Tensor, batch_size: int, generator: torch.Generator) -> None:
        """``lengths``: one for each of the ``chosen`` samples."""
        self.chosen = chosen
        self.lengths = lengths
        self.batch_size = batch_size
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        mixed = torch.randperm(len(self.chosen), generator=self.generator)
        shards = torch.split(mixed, SHARD * self.batch_size)
        by_length = functools.cache(lambda number: shards[number][self.lengths[shards[number]].argsort()])
        for batch in torch.randperm(len(mixed) // self.batch_size, generator=self.generator).tolist():
            shard, place = divmod(batch, SHARD)  # a shard is sorted when its first batch is asked for
            yield from self.chosen[by_length(shard)[place * self.batch_size :][: self.batch_size]].tolist()


class LengthClasses(Sampler[int]):
    """Whole batches of samples of one class of length each, shuffled; what fills no batch of its class is left out."""

    def __init__(
        self, chosen: Tensor, classes: Tensor, batch_size: int, generator: torch.Generator, turns: torch.Generator
    ) -> None:
        """``classes``: the number of one for each of the ``chosen`` samples.

        ``generator`` mixes the samples, ``turns`` the batches. Where ``turns`` are equal, all batches are of the same
        classes: ranks that average their gradients would wait for the longest batch otherwise. Raises InputError if no
        class fills a batch.
        """
        self.chosen = chosen
        self.classes = classes
        self.batch_size = batch_size
        self.generator = generator
        self.turns = turns
        most = int(torch.bincount(classes).max()) if len(classes) else 0
        if most < batch_size:
            raise InputError(
                f"--batch-size {batch_size}: no class of length has more than {most:,} sentences. Use at most as "
                "many, or a larger data scale"
            )

    def __iter__(self) -> Iterator[int]:
        mixed = torch.randperm(len(self.chosen), generator=self.generator)
        whole = []
        for each in torch.unique(self.classes).tolist():
            members = mixed[self.classes[mixed] == each]
            whole.append(members[: len(members) // self.batch_size * self.batch_size].view(-1, self.batch_size))
        batches = torch.cat(whole)
        for batch in torch.randperm(len(batches), generator=self.turns).tolist():
            yield from self.chosen[batches[batch]].tolist()


def collate(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, list[int]]:
    """Padded sources [S, N] and targets [T, N], the longest source first; the sources' lengths, for the host."""
    pairs = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)
    sources, targets = ([pair[side] for pair in pairs] for side in range(2))
    return pad_sequence(sources, False, PAD), pad_sequence(targets, False, PAD), [len(source) for source in sources]

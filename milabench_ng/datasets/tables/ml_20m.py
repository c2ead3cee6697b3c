"""MovieLens 20M for collaborative filtering: `train-ratings.csv` with user, item and 1, separated by tabs."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from milabench_ng.datasets.base import BINARY, DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.words import Integers, apportion, cut, draw, join, read_piece, zipf
from milabench_ng.model.errors import InputError

RATINGS = "train-ratings.csv"
USERS, ITEMS = 138_493, 26_744
ROWS = 19_861_770  # 20,000,263 ratings without the last one of each user
LEAST = 19  # ratings of a user
USER_SHIFT = 305  # the busiest user then has some 9,250 ratings, the median 60 (real: 9,253 and 67)
ITEM_SHIFT = 130  # the best known item then has some 67,000 ratings (real: 67,310)
ROUNDS = 20  # of draws by popularity alone
BLOCK = 1_000  # users per piece of work
PIECE = 8_000_000  # bytes per piece of conversion


class MovieLens(DataSet):
    """MovieLens 20M (Harper & Konstan, TiiS 5(4), 2015). Twin: as many users, items and rows, power-law popularity.

    A smaller scale leaves out ratings, not users or items: tables of users and items keep their size. There are no
    files for evaluation, since no launch reads them.
    """

    name = "ml-20m"
    folder = "ml-20m"
    version = 1
    scalable = True
    texts = (RATINGS,)

    def size(self, scale: float) -> Size:
        rows = int(_per_user(scale, 0).sum())
        return Size(files=3, bytes=rows * 19, core_seconds=2 + rows * 4e-6)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        blocks = -(-USERS // BLOCK)
        for_each(functools.partial(_write, place, scale, seed), blocks, processes, progress)
        join([place / f"{RATINGS}.{block}" for block in range(blocks)], place / RATINGS)

    def convert(self, place: Path, target: Path, progress: Progress, processes: int) -> None:
        """Write one sorted array of numbers, user * items + item, that holds all pairs and can be searched."""
        pieces = cut(place / RATINGS, PIECE)
        for_each(functools.partial(_convert, place, target, pieces), len(pieces), processes, progress)
        files = [target / f"{number}.npy" for number in range(len(pieces))]
        rows = np.concatenate([np.load(file) for file in files])
        for file in files:
            file.unlink()
        users, items = (int(count) + 1 for count in rows.max(0))
        pairs = rows[:, 0] * items + rows[:, 1]
        pairs.sort()
        if (pairs[1:] == pairs[:-1]).any():
            raise InputError(f"{place / RATINGS}: a user has rated an item twice. Replace the file")
        np.save(target / "pairs.npy", pairs.astype(np.min_scalar_type(users * items)))
        np.save(target / "shape.npy", np.asarray([users, items]))

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train"])
        users, items = np.load(place / BINARY / "shape.npy").tolist()
        return Ratings(np.load(place / BINARY / "pairs.npy", mmap_mode="r"), users, items, transform)


class Ratings(Dataset[tuple[Any, Any]]):
    """Which user has rated which item."""

    def __init__(self, pairs: Any, users: int, items: int, transform: Transform) -> None:
        """`pairs`: user * items + item of each rating, unsigned, sorted."""
        self.pairs = np.asarray(pairs)  # still mapped; indexing a memmap is slower
        self.users = users
        self.items = items
        self.transform = transform or int

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        user, item = divmod(self.pairs[index], self.items)
        return self.transform(user), self.transform(item)

    def contain(self, pairs: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether each of `pairs`, of the same type as ours, is a rating."""
        places = np.searchsorted(self.pairs, pairs)
        found: npt.NDArray[np.bool_] = self.pairs[np.minimum(places, len(self.pairs) - 1)] == pairs
        return found


def _per_user(scale: float, seed: int) -> Integers:
    """How many ratings each user has; busy and lazy users are mixed."""
    counts = apportion(zipf(USERS, USER_SHIFT), ROWS - LEAST * USERS) + LEAST
    return random_stream(seed, 0).permutation(np.maximum(1, np.rint(counts * scale).astype(np.int64)))


def _write(place: Path, scale: float, seed: int, block: int) -> None:
    """Write the ratings of one block of users, sorted. An item's number is unrelated to its popularity."""
    first = block * BLOCK
    counts = _per_user(scale, seed)[first : first + BLOCK]
    pairs = _choose(random_stream(seed, 2, block), counts, random_stream(seed, 1).permutation(ITEMS), first)
    users, items = np.divmod(pairs, ITEMS)
    rows = [f"{user}\t{item}\t1\n" for user, item in zip((users + first).tolist(), items.tolist(), strict=True)]
    (place / f"{RATINGS}.{block}").write_text("".join(rows), "ascii")


def _choose(rng: np.random.Generator, counts: Integers, names: Integers, first: int) -> Integers:
    """`counts` different items for each user of a block: user * ITEMS + item, sorted.

    Popularity falls with the square of the rank. Users that need more after some rounds of draws have thousands of
    ratings, and get the rest from further down. The first users have one item each that makes every item occur.
    """
    users = np.arange(len(counts))
    named = users[users + first < ITEMS]
    chosen: Integers = named * ITEMS + names[named + first]
    done, laws = [], [np.cumsum(zipf(ITEMS, ITEM_SHIFT, power)) for power in (2, 1)]
    wanted, missing, rounds = counts, counts - (users + first < ITEMS), 0
    while missing.any():
        ranks = draw(rng, laws[rounds >= ROUNDS], int(missing.sum()))
        chosen = np.unique(np.concatenate((chosen, np.repeat(users, missing) * ITEMS + names[ranks])))
        missing = wanted - np.bincount(chosen // ITEMS, minlength=len(users))
        finished = missing[chosen // ITEMS] == 0
        done.append(chosen[finished])
        chosen, wanted, rounds = chosen[~finished], np.where(missing == 0, 0, wanted), rounds + 1
    return np.sort(np.concatenate((*done, chosen)))


def _convert(place: Path, target: Path, pieces: list[tuple[int, int]], number: int) -> None:
    """Convert the rows of one piece: users and items."""
    text = io.BytesIO(read_piece(place / RATINGS, pieces[number]))
    try:
        rows = np.loadtxt(text, np.int64, delimiter="\t", usecols=(0, 1), ndmin=2)
    except ValueError as error:
        raise InputError(
            f"{place / RATINGS}: {str(error).rstrip('.')}. Its lines must be user, item and rating between tabs"
        ) from error
    np.save(target / f"{number}.npy", rows)

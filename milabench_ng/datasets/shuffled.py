"""A shuffled epoch of any length: each process computes the part that it needs, and none holds the whole."""

from __future__ import annotations

import math

import numpy as np

from milabench_ng.datasets.base import random_stream
from milabench_ng.datasets.words import Integers

ROUNDS = 4
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth, TAOCP 6.4)


def shuffled(places: Integers, length: int, key: int) -> Integers:
    """The numbers at `places` of a permutation of the numbers below `length`, chosen by `key`.

    A Feistel network (Luby & Rackoff, SIAM J. Comput. 17(2), 1988) over pairs of numbers below the root of `length`;
    numbers outside are passed through again, which keeps it a permutation (Black & Rogaway, CT-RSA 2002).
    """
    side = math.isqrt(length - 1) + 1
    keys = random_stream(key).integers(0, 1 << 62, ROUNDS)
    found = np.array(places)
    outside = np.arange(len(found))
    while len(outside):
        high, low = np.divmod(found[outside], side)
        for each in keys:
            mixed = (low.astype(np.uint64) ^ np.uint64(each)) * MULTIPLIER
            mixed = (mixed ^ (mixed >> np.uint64(29))) * MULTIPLIER
            high, low = low, (high + (mixed >> np.uint64(32)).astype(np.int64)) % side
        found[outside] = high * side + low
        outside = outside[found[outside] >= length]
    return found

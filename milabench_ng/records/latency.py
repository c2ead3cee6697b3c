"""Latencies as histograms whose buckets are 2 % wide. Pure.

Histograms of slices, ranks and launches add up, and a quantile of the sum is off by at most 1 %. The exception is a
slice with latencies in more than `MOST` buckets: they are joined, and its latencies count as longer than they were.
Several histograms of a slice share these buckets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from milabench_ng.model.bounds import LAST_BUCKET, Latencies

WIDTH = 1.02
"""The upper bound of a bucket over its lower bound."""
SHORTEST_S = 1e-6
"""The lower bound of bucket 0, which also holds what is shorter."""
LAST = LAST_BUCKET
"""The last bucket also holds what is longer than its lower bound, 1.1e6 s."""
MOST = 256
"""Most buckets of all histograms of one slice, so that its event fits into one line of the protocol."""


def bucket_of(seconds: float) -> int:
    if seconds <= SHORTEST_S:
        return 0
    return min(LAST, math.floor(math.log(seconds / SHORTEST_S) / math.log(WIDTH)))


def middle_s(bucket: int) -> float:
    """The geometric mean of a bucket's bounds in seconds, which stands for all that it holds."""
    return SHORTEST_S * math.pow(WIDTH, bucket + 0.5)


def histogram(seconds: Iterable[float], most: int = MOST) -> Latencies:
    """The latencies of one slice, also as a counter. More than ``most`` buckets are joined as the longest of each."""
    counts: Counter[int] = Counter()
    for each, count in Counter(seconds).items():
        counts[bucket_of(each)] += count
    step = 1
    while len(counts) > most:
        step *= 2
        wider: Counter[int] = Counter()
        for bucket, count in counts.items():
            wider[min(LAST, bucket // step * step + step - 1)] += count
        counts = wider
    return tuple(sorted(counts.items()))


def merged(histograms: Iterable[Latencies]) -> Latencies:
    """The sum of several histograms."""
    counts: Counter[int] = Counter()
    for each in histograms:
        counts.update(dict(each))
    return tuple(sorted(counts.items()))


def batches(latencies: Latencies) -> int:
    """How many latencies a histogram holds."""
    return sum(count for _, count in latencies)


def quantile_s(latencies: Latencies, share: float) -> float:
    """The latency that ``share`` (0 to 1) of all are at most (nearest rank), in seconds; NaN without any."""
    wanted = max(1, math.ceil(share * batches(latencies)))
    seen = 0
    for bucket, count in latencies:
        seen += count
        if seen >= wanted:
            return middle_s(bucket)
    return math.nan

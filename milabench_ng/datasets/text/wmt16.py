"""WMT16 English-German, split into sub-words."""

from __future__ import annotations

import numpy as np

from milabench_ng.datasets.text.parallel_text import ParallelText
from milabench_ng.datasets.words import Integers

LONGEST = 120  # sub-words; the real sentences were cut at 80 words, which are some 100 sub-words


class Wmt16(ParallelText):
    """WMT16 English-German (Bojar et al., WMT 2016). Twin: 4,068,191 sentence pairs over 32,316 sub-words.

    It has the files that a launch needs, 2.0 GB, but none of the 13 GB of downloads and intermediate files.
    """

    name = "wmt16"
    folder = "wmt16"
    version = 1
    pairs = 4_068_191
    sub_words = 32_316

    @staticmethod
    def length_weights() -> Integers:
        """Weights of 1 to LONGEST sub-words: n^2 0.9^n, a gamma distribution of mean 28 and standard deviation 16."""
        weights = [(length**2 * 9**length << 40) // 10**length for length in range(1, LONGEST + 1)]
        return np.asarray(weights, np.int64)

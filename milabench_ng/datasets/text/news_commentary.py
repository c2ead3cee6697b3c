"""News Commentary English-German, split into sub-words."""

from __future__ import annotations

import math

import numpy as np

from milabench_ng.datasets.text.parallel_text import ParallelText
from milabench_ng.datasets.words import Integers

LONGEST = 120  # sub-words
MEDIAN, SPREAD = 22, 0.55  # of the lengths, which are log-normal


class NewsCommentary(ParallelText):
    """News Commentary v11 English-German (Tiedemann, LREC 2012). Twin: 160,078 pairs over 31,796 sub-words.

    What NVIDIA's GNMT is trained on in Lambda's benchmark, in the files that its preparation makes.
    """

    name = "news-commentary"
    folder = "news-commentary"
    version = 1
    pairs = 160_078
    sub_words = 31_796

    @staticmethod
    def length_weights() -> Integers:
        """Weights of 1 to LONGEST sub-words, rounded far above the last digits in which machines may differ."""
        lengths = range(1, LONGEST + 1)
        return np.asarray(
            [round(1e6 / length * math.exp(-((math.log(length / MEDIAN) / SPREAD) ** 2) / 2)) for length in lengths],
            np.int64,
        )

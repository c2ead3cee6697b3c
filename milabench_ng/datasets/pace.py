"""How fast this machine generates: the seconds that data sets state were measured on another core."""

from __future__ import annotations

import statistics
import time

import numpy as np

from milabench_ng.datasets import photographs
from milabench_ng.datasets.base import random_stream

REFERENCE_S = 0.0055
"""Median of the trial on a core that makes a picture of the ImageNet twin in the 9 ms that the twin states."""
ROUNDS = 15


def pace() -> float:
    """Seconds of a core of this machine per second that the data sets state; takes a fraction of a second.

    Draws and encodes small pictures, which is what most of the generating is.
    """
    side = 300
    plain = np.zeros((side, side, 3), np.int16)
    look = photographs.look(0, 0)
    seconds = []
    for item in range(ROUNDS):
        began = time.monotonic()
        photographs.jpeg(photographs.photograph(random_stream(0, item), look, side, side, plain), 92)
        seconds.append(time.monotonic() - began)
    return statistics.median(seconds) / REFERENCE_S

"""How fast this machine generates, relative to the core on which the datasets' stated seconds were measured."""

from __future__ import annotations

import time

import numpy as np

from milabench_ng.datasets.base import random_stream
from milabench_ng.datasets.images import photographs
from milabench_ng.datasets.parallel import at_once
from milabench_ng.model.stats import mean

REFERENCE_S = 0.0055
"""Time of one trial picture on a core that makes a picture of the ImageNet twin in the 9 ms that the twin states."""
SIDE = 300
TRIAL_S = 0.3
"""Length of each process's trial, after its first picture."""


def pace(processes: int) -> float:
    """Seconds that a core of this machine takes per second that the datasets state, while ``processes`` cores work.

    Draws and encodes small pictures, as most of the generating does, on all cores at once: on an H200 node, 64 CPUs
    that share cores and clocks took twice as long for each as one alone (docs/measurements.md).
    """
    return mean(at_once(_seconds_per_picture, processes)) / REFERENCE_S


def _seconds_per_picture() -> float:
    _make_picture(0)
    began, made = time.monotonic(), 0
    while made == 0 or time.monotonic() < began + TRIAL_S:
        made += 1
        _make_picture(made)
    return (time.monotonic() - began) / made


def _make_picture(item: int) -> None:
    plain = np.zeros((SIDE, SIDE, 3), np.int16)
    photographs.jpeg(photographs.photograph(random_stream(0, item), photographs.look(0, 0), SIDE, SIDE, plain), 92)

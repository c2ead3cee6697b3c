"""How far devices are from each other, by the peaks that are published of them."""

from __future__ import annotations

import math

from milabench_ng.analysis.baselines.peaks import PEAKS, Arithmetic, Peak, peak
from milabench_ng.model.errors import InputError


def distance(source: Peak, target: Peak, kind: Arithmetic) -> float | None:
    """The logarithm of the geometric mean of the arithmetic and memory ratios; None if a device lacks ``kind``."""
    ours, theirs = source.arithmetic(kind), target.arithmetic(kind)
    if ours is None or theirs is None:
        return None
    return (math.log(theirs / ours) + math.log(target.memory / source.memory)) / 2


def known_peak(name: str, what: str) -> Peak:
    """`peak`, or an error that names the known ones; ``what`` is the option or file that asks."""
    found = peak(name)
    if found is None:
        known = ", ".join(each.name for each in PEAKS)
        raise InputError(f"{what}: the peak rates of {name!r} are not known; there are {known}")
    return found

"""``--batch-size auto``: the sizes that are tried, in which order, and which of them fits. Pure.

The sizes are 1, 2, 3, 4, 6, 8, 12, 16, ... 65536: the powers of two and the number halfway between two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milabench_ng.model.catalogue import Option

BATCH_SIZE = "batch_size"
"""The option that can be automatic."""
FRACTION = 0.9
"""The part of its memory that a tenant may fill, unless a test says otherwise."""
STEPS = 3
"""Steps of a trial. The first makes gradients and optimizer state, so that the second has all of a training step."""
LARGEST = 1 << 16


def sizes_for(option: Option) -> tuple[int, ...]:
    """The sizes to choose from, within the range of the workload's option and its ends, in ascending order."""
    powers = [1 << exponent for exponent in range(LARGEST.bit_length())]
    between = [3 * power for power in powers if 3 * power < LARGEST]
    ends = [size for size in (option.range.ge, option.range.le) if isinstance(size, int)]
    return tuple(size for size in sorted({*powers, *between, *ends}) if option.range.holds(size))


def next_size(tried: Mapping[int, bool], sizes: Sequence[int]) -> int | None:
    """The size to try next, given which ones fitted; None if the largest that fits is known.

    Doubles from the smallest of ``sizes`` (ascending) until one does not fit, then bisects what is in between.
    """
    fitting = [place for place, size in enumerate(sizes) if tried.get(size) is True]
    failing = [place for place, size in enumerate(sizes) if tried.get(size) is False]
    low = max(fitting, default=-1)
    high = min(failing, default=len(sizes))
    if high - low <= 1:
        return None
    if failing:
        return sizes[(low + high) // 2]
    if low < 0:
        return sizes[0]
    return next((size for size in sizes if size >= 2 * sizes[low]), sizes[-1])


def largest_fitting(tried: Mapping[int, bool]) -> int | None:
    """The largest size that fitted; None if none did."""
    return max((size for size, fits in tried.items() if fits), default=None)

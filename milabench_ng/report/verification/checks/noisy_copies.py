"""Launches whose slices are those of another one with a little noise: they rise and fall together. Pure.

Every two launches could be compared, slice by slice; a folder of thousands would take hours. So a launch is compared
at its ends, and only with those few before it that change most alike from slice to slice: a copy does at most places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median

_FEWEST = 8
_JITTER = 3e-5
"""Relative difference of slices that copies with added noise have: launches of their own differ by 1e-4 and more."""
_OF_SPREAD = 0.1
"""And how much less that is than the spread of the slices."""
_OF_WIDE_SPREAD = 0.004
"""Or how much less whatever it is: sentences of the same lengths in two runs come down to 0.015."""
_MANY = 20
"""Fewer slices are alike by chance in a few of 400 launches, so copies of them have to be nearer."""
_COMPARED = 100
"""Slices at each end."""
_PLACES = 8
"""At each end where two launches may change alike. A copy with the largest noise does at two of three."""
_NEIGHBOURS, _CANDIDATES = 100, 3
"""Most launches that are known by one place, and most that one is compared with."""

Place = tuple[str, int, int, int, int]
"""A change and the next one, near the first or last slice: end, number, exponent of the unit, both changes in units."""


def noisy_copies(launches: Iterable[tuple[str, Sequence[float]]]) -> Iterator[tuple[str, str]]:
    """The launches of one test, by name, whose slices are nearly those of an earlier one, and its name.

    Of each launch, the logarithms of the seconds a step, by slice.
    """
    known: dict[str, Sequence[float]] = {}
    seen: dict[Place, list[str]] = {}
    for name, times in launches:
        if len(times) < _FEWEST:
            continue
        places = list(_places(times))
        near = Counter(other for place in places for other in seen.get(place, ()) if other != name)
        source = next((other for other, _ in near.most_common(_CANDIDATES) if _alike(known[other], times)), None)
        if source is not None:
            yield name, source
        known[name] = times
        for place in places:
            if len(found := seen.setdefault(place, [])) < _NEIGHBOURS:
                found.append(name)


def _places(times: Sequence[float]) -> Iterator[Place]:
    """Where a copy is found by: its changes in units of eight times the largest noise, and in twice that.

    The spread of a copy is nearly its source's, so that they have one of the two units in common.
    """
    noise = _noise(2 * _spread(times))
    if noise == 0:
        return
    exponent = math.floor(math.log2(8 * noise))
    for end, values in (("first", times), ("last", times[::-1])):
        changes = [after - before for before, after in pairwise(values[: _PLACES + 2])]
        for unit in (exponent, exponent + 1):
            steps = [math.floor(math.ldexp(change, -unit)) for change in changes]
            yield from ((end, number, unit, *two) for number, two in enumerate(pairwise(steps)))


def _alike(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether two launches rise and fall together, from the first or to the last slice."""
    size = min(len(ours), len(theirs), _COMPARED)
    return _together(ours[:size], theirs[:size]) or _together(ours[-size:], theirs[-size:])


def _together(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    apart = _spread([one - other for one, other in zip(ours, theirs, strict=True)])
    return apart < _noise(_spread(ours) + _spread(theirs)) * _certainty(len(ours))


def _certainty(slices: int) -> float:
    """The part of the largest noise up to which so many slices are no chance, 1/16 to 1."""
    return min(1.0, ((slices - 4) / (_MANY - 4)) ** 2)


def _noise(spread: float) -> float:
    """How far copies are apart at most; ``spread``: of both launches."""
    return max(_OF_WIDE_SPREAD * spread, min(_JITTER, _OF_SPREAD * spread))


def _spread(values: Sequence[float]) -> float:
    """The median distance from the median."""
    middle = median(values)
    return median(abs(value - middle) for value in values)

"""Items by a key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def gathered(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """The second parts of pairs by the first, both in order of occurrence."""
    groups: dict[K, list[T]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items with the same key together, groups and items in order of occurrence."""
    return gathered((key(item), item) for item in items)

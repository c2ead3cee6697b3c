"""Files of cgroups as typed attributes, on cgroupspy's descriptor protocol (`BaseFileInterface`).

Ours add what it lacks: typed values, strings for CPU lists, one pid per write, empty files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar, overload

from cgroupspy.interfaces import BaseFileInterface, CommaDashSetFile

T = TypeVar("T")
Ids = tuple[int, ...]
Keyed = dict[str, int]
Nested = dict[str, dict[str, str]]

# v1 shows "no limit" as the largest number of pages that a counter holds: 2^63 - 1 rounded down to a page.
V1_UNLIMITED = 2**63 - 2**16


def parse_ids(text: str) -> Ids:
    """Numbers of a kernel list such as `0-3,8`, ascending. Raises ValueError if it is not one."""
    numbers: set[int] = CommaDashSetFile("").sanitize_get(text)
    return tuple(sorted(numbers))


def format_ids(ids: Iterable[int]) -> str:
    """The kernel's list form of numbers: `0-3,8`; empty for none."""
    text: str = CommaDashSetFile("").sanitize_set(set(ids))
    return text.strip()


class File(BaseFileInterface, Generic[T]):  # type: ignore[misc]  # cgroupspy has no types
    """One file of a cgroup as a typed attribute; accessed on the class, the descriptor itself."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else super().__get__(instance, owner)

    def __set__(self, instance: object, value: T) -> None:
        super().__set__(instance, value)


class NumberFile(File[int]):
    """A plain number."""

    def sanitize_get(self, value: str) -> int:
        return int(value)


class FlagFile(File[bool]):
    """0 or 1."""

    def sanitize_get(self, value: str) -> bool:
        return value == "1"

    def sanitize_set(self, value: bool) -> str:
        return "1" if value else "0"


class Limit(File[int | None]):
    """A number, or None for no limit (`max` on v2 and for pids)."""

    def sanitize_get(self, value: str) -> int | None:
        return None if value == "max" else int(value)

    def sanitize_set(self, value: int | None) -> str:
        return "max" if value is None else str(value)


class Limit1(File[int | None]):
    """A limit in bytes of v1, None for no limit (-1 when written, a huge number when read)."""

    def sanitize_get(self, value: str) -> int | None:
        return None if int(value) >= V1_UNLIMITED else int(value)

    def sanitize_set(self, value: int | None) -> str:
        return "-1" if value is None else str(value)


class IdList(File[Ids]):
    """CPUs or NUMA nodes: `0-3,8`."""

    def sanitize_get(self, value: str) -> Ids:
        return parse_ids(value)

    def sanitize_set(self, value: Iterable[int]) -> str:
        return format_ids(value) or " "


class WordsFile(File[tuple[str, ...]]):
    """Words on one line, such as the controllers of a group; written with `+` and `-` before each."""

    def sanitize_get(self, value: str) -> tuple[str, ...]:
        return tuple(value.split())

    def sanitize_set(self, value: Iterable[str]) -> str:
        return " ".join(value)


class FlatKeyed(File[Keyed]):
    """Lines `key number`; unlike cgroupspy's, an empty file is an empty dictionary."""

    readonly = True

    def sanitize_get(self, value: str) -> Keyed:
        return {key: int(number) for key, number in (line.split() for line in value.splitlines())}


class NestedKeyed(File[Nested]):
    """Lines `name key=value ...` (`io.stat`, `io.max`, `*.pressure`); a write takes one line, so one device."""

    def sanitize_get(self, value: str) -> Nested:
        return {line.split()[0]: dict(pair.split("=", 1) for pair in line.split()[1:]) for line in value.splitlines()}

    def sanitize_set(self, value: Nested) -> str:
        [(name, pairs)] = value.items()
        return " ".join([name, *(f"{key}={word}" for key, word in pairs.items())])


class Table(File[tuple[tuple[str, ...], ...]]):
    """Lines of words, unparsed (`blkio.throttle.*`); a write takes one line."""

    def sanitize_get(self, value: str) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(line.split()) for line in value.splitlines())

    def sanitize_set(self, value: Iterable[Iterable[str]]) -> str:
        [line] = value
        return " ".join(line)


class Pids(File[Ids]):
    """Process ids; the kernel takes one per write, so an assignment needs exactly one (0 is the writer itself)."""

    def sanitize_get(self, value: str) -> Ids:
        return tuple(int(line) for line in value.split())

    def sanitize_set(self, value: Iterable[int]) -> str:
        [pid] = value
        return str(pid)

"""Data sets as another package would write them, for the tests and for the processes that the tests start."""

# ruff: noqa: ARG002 - a toy needs less than its interface offers

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from milabench_ng.datasets.base import DataSet, Progress, Size, random_stream
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.prepare import prepare

ITEMS = 40


class Toy(DataSet):
    """Forty files of random bytes, the real one is known by `real.bin`."""

    name = "toy"
    folder = "Toy"
    version = 1
    scalable = True

    def size(self, scale: float) -> Size:
        return Size(ITEMS, ITEMS * 1000, 0.1)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        for_each(functools.partial(self.write, place, seed), ITEMS, processes, progress)

    @staticmethod
    def write(place: Path, seed: int, item: int) -> None:
        (place / f"{item}.bin").write_bytes(random_stream(seed, item).bytes(1000))

    def open(self, place: Path, *, split: str = "train", transform: Callable[[Any], Any] | None = None) -> Any:
        return sorted(place.glob("*.bin"))

    def looks_real(self, place: Path) -> bool:
        return (place / "real.bin").exists()


class Newer(Toy):
    version = 2


class Endless(Toy):
    """Blocks for ever in its second half, in every process that makes an item of it."""

    @staticmethod
    def write(place: Path, seed: int, item: int) -> None:
        Toy.write(place, seed, item)
        if item >= ITEMS // 2:
            os.write(1, f"{os.getpid()}\n".encode())  # one write: several processes share the pipe
            os.read(blocked, 1)


class Gigantic(Toy):
    def size(self, scale: float) -> Size:
        return Size(10, 1 << 60, 1.0)


blocked, _never = os.pipe()

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts with & ignore it
    kind = {"toy": Toy, "endless": Endless}[sys.argv[1]]
    made: list[int] = []
    prepare(kind(), Path(sys.argv[2]), 1.0, lambda done, _: made.append(done), int(sys.argv[3]))
    print("generated" if made else "found", flush=True)

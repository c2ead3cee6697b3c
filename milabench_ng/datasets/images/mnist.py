"""MNIST: handwritten digits of 28 x 28 pixels in four idx files, in torchvision's folders."""

from __future__ import annotations

import functools
import os
import struct
from pathlib import Path

from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor

from milabench_ng.datasets.base import DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.images import digits
from milabench_ng.datasets.parallel import for_each

RAW = Path("MNIST", "raw")
PARTS = {"train": 60_000, "t10k": 10_000}
BLOCK = 1_000  # digits per piece of work
IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049  # http://yann.lecun.com/exdb/mnist: unsigned bytes in 3 and in 1 dimensions
IMAGES_HEADER, LABELS_HEADER = struct.Struct(">4i"), struct.Struct(">2i")


class Mnist(DataSet):
    """MNIST (LeCun et al., Proc. IEEE 86(11), 1998). Twin: 60,000 + 10,000 digits drawn with a varying pen."""

    name = "mnist"
    folder = "mnist"
    version = 1
    scalable = False

    def size(self, scale: float) -> Size:  # noqa: ARG002 - it has one size
        digits_in_all = sum(PARTS.values())
        return Size(4, digits_in_all * 785 + 48, 2.0)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:  # noqa: ARG002
        (place / RAW).mkdir(parents=True)
        for part, count in PARTS.items():
            _images(place, part).write_bytes(IMAGES_HEADER.pack(IMAGES_MAGIC, count, digits.SIDE, digits.SIDE))
            _labels(place, part).write_bytes(LABELS_HEADER.pack(LABELS_MAGIC, count))
        for_each(functools.partial(_write, place, seed), sum(PARTS.values()) // BLOCK, processes, progress)

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, ["train", "test"])
        return MNIST(str(place), train=split == "train", transform=transform or ToTensor())  # type: ignore[no-any-return]

    def looks_real(self, place: Path) -> bool:
        return all(_images(place, part).is_file() and _labels(place, part).is_file() for part in PARTS)


def _images(place: Path, part: str) -> Path:
    return place / RAW / f"{part}-images-idx3-ubyte"


def _labels(place: Path, part: str) -> Path:
    return place / RAW / f"{part}-labels-idx1-ubyte"


def _write(place: Path, seed: int, item: int) -> None:
    """Make one block of digits and write it to its place in the files."""
    part, block = ("train", item) if item < PARTS["train"] // BLOCK else ("t10k", item - PARTS["train"] // BLOCK)
    rng = random_stream(seed, item)
    labels = rng.integers(0, digits.CLASSES, BLOCK)
    images = digits.draw(rng, labels)
    _write_at(_images(place, part), IMAGES_HEADER.size + block * images.size, images.tobytes())
    _write_at(_labels(place, part), LABELS_HEADER.size + block * BLOCK, labels.astype("u1").tobytes())


def _write_at(path: Path, offset: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, offset)
    finally:
        os.close(descriptor)

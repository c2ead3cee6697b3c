"""BSDS500: photographs in `BSR/BSDS500/data/images/{train,val,test}`, all of one size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms.functional import to_tensor

from milabench_ng.datasets.base import DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.images import photographs
from milabench_ng.datasets.parallel import for_each

IMAGES = Path("BSR", "BSDS500", "data", "images")
SPLITS = {"train": 200, "val": 100, "test": 200}
LONG, SHORT = 481, 321  # pixels
BYTES_PER_IMAGE = 76_000  # measured over all 500


class Bsds500(DataSet):
    """Berkeley segmentation images (Arbelaez et al., PAMI 33(5), 2011). Twin: 500 pictures, without segmentations."""

    name = "bsds500"
    folder = "bsds500"
    version = 1
    scalable = False

    def size(self, scale: float) -> Size:  # noqa: ARG002 - it has one size
        images = sum(SPLITS.values())
        return Size(images, images * BYTES_PER_IMAGE, images * 0.007)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:  # noqa: ARG002
        for split in SPLITS:
            (place / IMAGES / split).mkdir(parents=True)
        photographs.texture(seed)
        for_each(functools.partial(_write, place, seed), sum(SPLITS.values()), processes, progress)

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, SPLITS)
        return Pictures(place / IMAGES / split, transform or to_tensor)

    def looks_real(self, place: Path) -> bool:
        return all(any((place / IMAGES / split).glob("*.jpg")) for split in SPLITS)


class Pictures(Dataset[Any]):
    """The pictures of one folder, each passed through `transform`."""

    def __init__(self, folder: Path, transform: Callable[[Image.Image], Any]) -> None:
        self.files = sorted(map(str, folder.glob("*.jpg")))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.files[index]) as picture:
            return self.transform(picture.convert("RGB"))


def _write(place: Path, seed: int, item: int) -> None:
    """Make one picture; two of three are landscape, the others portrait. Items number the pictures of all splits."""
    splits = [split for split, count in SPLITS.items() for _ in range(count)]
    rng = random_stream(seed, 0, item)
    width, height = (LONG, SHORT) if rng.integers(3) else (SHORT, LONG)
    picture = photographs.photograph(rng, photographs.look(seed, item), width, height, photographs.texture(seed))
    name = f"{1000 + item}.jpg"
    (place / IMAGES / splits[item] / name).write_bytes(photographs.jpeg(picture, int(rng.integers(83, 94))))

"""COCO 2017: photographs in `{train,val}2017`, and boxes and outlines of their objects in `annotations`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from milabench_ng.datasets.base import BINARY, DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.images import coco_index, photographs
from milabench_ng.datasets.images.coco_index import Array
from milabench_ng.datasets.images.coco_scenes import annotation_file, file_name, scene
from milabench_ng.datasets.parallel import for_each

SPLITS = {"train": 118_287, "val": 5_000}
BYTES_PER_IMAGE = 160_000  # measured over 1,233 images
BYTES_OF_BOXES = 1_850  # JSON and index, per image
SECONDS_PER_IMAGE = 0.013


class Coco(DataSet):
    """Common Objects in Context, detection (Lin et al., ECCV 2014). Twin: 123,287 pictures, 7.3 boxes on average."""

    name = "coco"
    folder = "coco"
    version = 2
    scalable = True
    texts = tuple(f"annotations/instances_{split}2017.json" for split in SPLITS)

    def size(self, scale: float) -> Size:
        images = sum(self.scaled(SPLITS, scale).values())
        return Size(images + 10, images * (BYTES_PER_IMAGE + BYTES_OF_BOXES), images * SECONDS_PER_IMAGE)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        counts = self.scaled(SPLITS, scale)
        for split in SPLITS:
            (place / f"{split}2017").mkdir()
        photographs.texture(seed)
        for_each(functools.partial(_write, place, counts["train"], seed), sum(counts.values()), processes, progress)
        _annotations(place, "train").parent.mkdir()
        for split, first in (("train", 0), ("val", counts["train"])):
            content = annotation_file(seed, first, counts[split])
            _annotations(place, split).write_bytes(msgspec.json.encode(content))

    def convert(self, place: Path, target: Path, progress: Progress, processes: int) -> None:  # noqa: ARG002
        for split in SPLITS:
            coco_index.write(_annotations(place, split), target)

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, SPLITS)
        index = coco_index.read(place / BINARY, _annotations(place, split))
        return Boxed(place / f"{split}2017", index, transform or _as_it_is)

    def looks_real(self, place: Path) -> bool:
        return all((place / text).is_file() for text in self.texts) and any((place / "train2017").glob("*.jpg"))


class Boxed(Dataset[Any]):
    """The pictures that have a box; a sample is `transform(picture, corners, labels)`.

    Corners: [n, 4] float32, left, top, right, bottom as parts of the picture. Labels: [n] int64, 1 to 80.
    """

    def __init__(self, folder: Path, index: tuple[Array, ...], transform: Callable[..., Any]) -> None:
        """`index`: as `coco_index.read` returns it."""
        self.folder = str(folder)
        self.index = index
        self.images, self.boxes, self.rings, self.points = index
        self.numbers = np.flatnonzero(self.images["boxes"])
        self.transform = transform

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int) -> Any:
        entry = self.images[self.numbers[number]]
        return self.transform(self._picture(entry), *_placed(self._boxes(entry)))

    def _boxes(self, entry: Any) -> Array:
        """Those of an image."""
        return self.boxes[entry["first"] : entry["first"] + entry["boxes"]]

    def _picture(self, entry: Any) -> Image.Image:
        with Image.open(f"{self.folder}/{entry['file'].decode()}") as picture:
            return picture.convert("RGB")


class Outlined(Boxed):
    """The pictures that have an outline; a sample is `transform(picture, corners, labels, outlines)`.

    Boxes without an outline, of crowds, and without an area are left out. Outlines: the rings of each box, float32
    [points, 2] each, as parts of the picture.
    """

    def __init__(self, boxed: Boxed, transform: Callable[..., Any]) -> None:
        super().__init__(Path(boxed.folder), boxed.index, transform)
        images = np.repeat(np.arange(len(self.images)), self.images["boxes"])
        self.numbers = np.unique(images[_has_outline(self.boxes)])

    @property
    def upright(self) -> Array:
        """Which samples are higher than wide, bool."""
        upright: Array = (self.images["height"] > self.images["width"])[self.numbers]
        return upright

    def __getitem__(self, number: int) -> Any:
        entry = self.images[self.numbers[number]]
        boxes = self._boxes(entry)
        kept = boxes[_has_outline(boxes)]
        return self.transform(self._picture(entry), *_placed(kept), [self._outline(box) for box in kept])

    def _outline(self, box: Any) -> list[Array]:
        rings = self.rings[box["first"] : box["first"] + box["rings"]]
        return [self.points[ring["first"] : ring["first"] + ring["points"]] for ring in rings]


def _has_outline(boxes: Array) -> Array:
    left, top, right, bottom = boxes["corners"].T
    found: Array = (boxes["rings"] > 0) & (right > left) & (bottom > top)
    return found


def _placed(boxes: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Corners, float32 [n, 4], and labels, int64 [n]."""
    return torch.from_numpy(np.array(boxes["corners"], order="C")), torch.from_numpy(boxes["label"].astype(np.int64))


def _as_it_is(picture: Image.Image, corners: torch.Tensor, labels: torch.Tensor) -> Any:
    return picture, corners, labels


def _annotations(place: Path, split: str) -> Path:
    return place / "annotations" / f"instances_{split}2017.json"


def _write(place: Path, train: int, seed: int, item: int) -> None:
    """Make one picture. Items number the pictures of both splits."""
    shown = scene(seed, item)
    things = [photographs.Thing(photographs.look(seed, label), *box) for *box, label in shown.boxes.tolist()]
    rng = random_stream(seed, 4, item)
    background, texture = photographs.look(seed, 1000 + item), photographs.texture(seed)
    picture = photographs.photograph(rng, background, shown.width, shown.height, texture, things)
    folder = place / ("train2017" if item < train else "val2017")
    (folder / file_name(item + 1)).write_bytes(photographs.jpeg(picture, int(rng.integers(85, 96))))

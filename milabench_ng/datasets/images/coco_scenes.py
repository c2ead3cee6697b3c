"""What the pictures of the COCO twin show: sizes, boxes and categories with the statistics of train2017.

Everything is drawn from integers, so that it is the same on every machine.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from milabench_ng.datasets.base import random_stream

BLOCK = 500  # scenes per piece of work
MOST_BOXES = 93
EMPTY = 86  # of 10,000 pictures have no box, 1,021 of 118,287 in train2017
COUNT_MEDIAN, COUNT_SIGMA = 4.55, 1.035  # lognormal: the mean is 7.3, the 860,001 boxes of train2017 / 118,287
# Areas: 41 % below 32 x 32 pixels, 24 % above 96 x 96, as Lin et al. count them. A lozenge fills half of its box.
SIDE_MEDIAN, SIDE_SIGMA = 59.0, 1.18
PERSON, OTHERS = 320, 695  # boxes in the table of categories; the others' counts are then rounded up

SIZES = ((640, 480), (640, 427), (480, 640), (427, 640), (640, 426), (640, 425), (500, 375), (640, 360), (612, 612))
SIZE_SHARES = (36, 26, 14, 7, 5, 4, 4, 3, 1)
MISSING_IDS = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""The 80 categories have the ids up to 90 except these."""
CATEGORIES = {
    "person": "person",
    "vehicle": "bicycle,car,motorcycle,airplane,bus,train,truck,boat",
    "outdoor": "traffic light,fire hydrant,stop sign,parking meter,bench",
    "animal": "bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe",
    "accessory": "backpack,umbrella,handbag,tie,suitcase",
    "sports": "frisbee,skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket",
    "kitchen": "bottle,wine glass,cup,fork,knife,spoon,bowl",
    "food": "banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake",
    "furniture": "chair,couch,potted plant,bed,dining table,toilet",
    "electronic": "tv,laptop,mouse,remote,keyboard,cell phone",
    "appliance": "microwave,oven,toaster,sink,refrigerator",
    "indoor": "book,clock,vase,scissors,teddy bear,hair drier,toothbrush",
}
IDS = tuple(number for number in range(1, 91) if number not in MISSING_IDS)


class Scene:
    """One picture: its size in pixels, and its boxes as rows of left, top, right, bottom, category (0 to 79)."""

    def __init__(self, width: int, height: int, boxes: npt.NDArray[np.int64]) -> None:
        self.width = width
        self.height = height
        self.boxes = boxes


@functools.lru_cache(maxsize=2)  # neighbouring items are made one after the other
def block(seed: int, number: int) -> tuple[Scene, ...]:
    """The scenes number * BLOCK to (number + 1) * BLOCK - 1."""
    rng = random_stream(seed, 3, number)
    sizes = np.asarray(SIZES)[np.searchsorted(np.cumsum(SIZE_SHARES), rng.integers(0, 100, BLOCK), side="right")]
    counts = _counts()[rng.integers(0, len(_counts()), BLOCK)]
    total = int(counts.sum())
    owner = np.repeat(np.arange(BLOCK), counts)
    side = _sides()[rng.integers(0, len(_sides()), total)]
    shape = rng.integers(50, 201, total)  # width / height in 1/100, before the picture's edges cut in
    frame = sizes[owner]
    across = np.clip(side * shape // 100, 2, frame[:, 0] - 1)
    down = np.clip(side * 100 // shape, 2, frame[:, 1] - 1)
    left = rng.integers(0, frame[:, 0] - across)
    top = rng.integers(0, frame[:, 1] - down)
    category = _categories()[rng.integers(0, len(_categories()), total)]
    boxes = np.stack((left, top, left + across, top + down, category), axis=1)
    parts = np.split(boxes, np.cumsum(counts)[:-1])
    return tuple(Scene(int(w), int(h), part) for (w, h), part in zip(sizes, parts, strict=True))


def scene(seed: int, item: int) -> Scene:
    return block(seed, item // BLOCK)[item % BLOCK]


def annotation_file(seed: int, first: int, count: int) -> dict[str, Any]:
    """The content of an annotation file for the scenes from `first` on: images, annotations, categories."""
    scenes = [(item + 1, scene(seed, item)) for item in range(first, first + count)]
    images = [
        {"license": 1, "file_name": file_name(number), "height": one.height, "width": one.width, "id": number}
        for number, one in scenes
    ]
    return {
        "info": {"description": "synthetic dataset like COCO 2017", "version": "1.0", "year": 2017},
        "licenses": [{"url": "", "id": 1, "name": "generated"}],
        "images": images,
        "annotations": list(_annotations(scenes, first)),
        "categories": categories(),
    }


def file_name(number: int) -> str:
    """The file name of the picture with that id."""
    return f"{number:012d}.jpg"


def categories() -> list[dict[str, Any]]:
    """The 80 categories in the order of their ids."""
    names = [(group, name) for group, members in CATEGORIES.items() for name in members.split(",")]
    return [
        {"supercategory": group, "id": number, "name": name} for number, (group, name) in zip(IDS, names, strict=True)
    ]


def _annotations(scenes: list[tuple[int, Scene]], first: int) -> Iterator[dict[str, Any]]:
    serial = first * (MOST_BOXES + 1)
    for number, one in scenes:
        for left, top, right, bottom, category in one.boxes.tolist():
            serial += 1
            across, down = (left + right) // 2, (top + bottom) // 2
            yield {
                "segmentation": [[across, top, right, down, across, bottom, left, down]],
                "area": (right - left) * (bottom - top) / 2,
                "iscrowd": 0,
                "image_id": number,
                "bbox": [left, top, right - left, bottom - top],
                "category_id": IDS[category],
                "id": serial,
            }


@functools.cache
def _counts() -> npt.NDArray[np.int64]:
    """Numbers of boxes in a picture, 10,000 equally likely ones."""
    drawn = np.asarray(_lognormal(COUNT_MEDIAN, COUNT_SIGMA, 10_000)).astype(np.int64).clip(1, MOST_BOXES)
    drawn[:EMPTY] = 0
    return drawn


@functools.cache
def _sides() -> npt.NDArray[np.int64]:
    """Square roots of the areas of boxes in pixels, 1,000 equally likely ones."""
    return np.asarray([round(value) for value in _lognormal(SIDE_MEDIAN, SIDE_SIGMA, 1_000)])


@functools.cache
def _categories() -> npt.NDArray[np.int64]:
    """Equally likely categories: three of ten are persons, the frequency of the others falls like 1 / (rank + 8)."""
    others = np.asarray([1 / (rank + 8) for rank in range(1, 80)])
    shares = np.floor(others / others.sum() * OTHERS).astype(np.int64) + 1
    ranked = 1 + (np.arange(79) * 37) % 79  # frequent ones are spread over the list
    return np.concatenate((np.zeros(PERSON, np.int64), np.repeat(ranked, shares)))


def _lognormal(median: float, sigma: float, points: int) -> list[float]:
    """The quantiles (i + 1/2) / points."""
    normal = NormalDist(math.log(median), sigma)
    return [math.exp(normal.inv_cdf((index + 0.5) / points)) for index in range(points)]

"""Boxes of COCO as memory-mapped arrays: the annotation file of train2017 is 450 MB of JSON, seconds in each launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from milabench_ng.errors import InputError

IMAGE = np.dtype([("file", "S64"), ("width", "i4"), ("height", "i4"), ("first", "i8"), ("boxes", "i8")])
BOX = np.dtype([("corners", "f4", 4), ("label", "u1")])
"""Corners: left, top, right, bottom as parts of the picture. Label: 1 to 80 in the order of the category ids."""

Array = npt.NDArray[Any]


class _Image(msgspec.Struct, frozen=True):
    id: int
    file_name: str
    width: int
    height: int


class _Annotation(msgspec.Struct, frozen=True, gc=False):
    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]
    """Left, top, width, height in pixels."""


class _Category(msgspec.Struct, frozen=True):
    id: int


class _Annotations(msgspec.Struct, frozen=True):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


def write(annotations: Path, folder: Path) -> None:
    """Write the arrays of an annotation file into `folder`.

    Raises InputError for a file that is not in COCO's format, OSError if the folder cannot be written.
    """
    try:
        content = msgspec.json.decode(annotations.read_bytes(), type=_Annotations)
        made = arrays(content)
    except (msgspec.MsgspecError, KeyError) as error:
        raise InputError(f"{annotations} is no annotation file of COCO: {error}. Replace it") from error
    for path, array in zip(_paths(folder, annotations), made, strict=True):
        np.save(path, array)


def read(folder: Path, annotations: Path) -> tuple[Array, Array]:
    """The images (IMAGE) and boxes (BOX) of an annotation file that `write` put into `folder`, mapped."""
    images, boxes = _paths(folder, annotations)
    return np.load(images, mmap_mode="r"), np.load(boxes, mmap_mode="r")


def _paths(folder: Path, annotations: Path) -> tuple[Path, Path]:
    return folder / f"{annotations.stem}-images.npy", folder / f"{annotations.stem}-boxes.npy"


def arrays(content: _Annotations) -> tuple[Array, Array]:
    """Images sorted by id, and their boxes in the same order."""
    labels = {one: label for label, one in enumerate(sorted(entry.id for entry in content.categories), start=1)}
    listed = sorted(content.images, key=lambda image: image.id)
    place = {image.id: number for number, image in enumerate(listed)}
    owner = np.asarray([place[one.image_id] for one in content.annotations], np.int64)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(listed))

    boxes = np.zeros(len(owner), BOX)
    corners = np.asarray([one.bbox for one in content.annotations], np.float64).reshape(-1, 4)
    corners[:, 2:] += corners[:, :2]
    frame = np.asarray([(image.width, image.height) for image in listed], np.float64).reshape(-1, 2)[owner]
    boxes["corners"] = (corners / np.tile(frame, 2))[order]
    boxes["label"] = np.asarray([labels[one.category_id] for one in content.annotations], np.uint8)[order]

    images = np.zeros(len(listed), IMAGE)
    images["file"] = [image.file_name.encode() for image in listed]
    images["width"] = [image.width for image in listed]
    images["height"] = [image.height for image in listed]
    images["boxes"] = counts
    images["first"] = np.cumsum(counts) - counts
    return images, boxes

"""Boxes and outlines of COCO as memory-mapped arrays.

The annotation file of train2017 is 450 MB of JSON, which would take seconds of each launch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from milabench_ng.model.errors import InputError

IMAGE = np.dtype([("file", "S64"), ("width", "i4"), ("height", "i4"), ("first", "i8"), ("boxes", "i8")])
BOX = np.dtype([("corners", "f4", 4), ("label", "u1"), ("first", "i8"), ("rings", "i4")])
"""Corners: left, top, right, bottom as parts of the picture. Label: 1 to 80 in the order of the category ids. The rings
of its outline; a crowd has none."""
RING = np.dtype([("first", "i8"), ("points", "i4")])
"""A closed line of at least three points."""
LEAST_POINTS = 3

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
    segmentation: msgspec.Raw = msgspec.Raw(b"[]")
    """Rings, each across, down, across, down ... in pixels; a table for a crowd."""


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


def read(folder: Path, annotations: Path) -> tuple[Array, ...]:
    """What `write` put into `folder` of an annotation file, mapped: images, boxes, rings, points."""
    return tuple(np.load(path, mmap_mode="r") for path in _paths(folder, annotations))


def _paths(folder: Path, annotations: Path) -> tuple[Path, ...]:
    return tuple(folder / f"{annotations.stem}-{name}.npy" for name in ("images", "boxes", "rings", "points"))


def arrays(content: _Annotations) -> tuple[Array, ...]:
    """Images (IMAGE) sorted by id, their boxes (BOX) in the same order, rings (RING) and points (float32 [P, 2])."""
    labels = {one: label for label, one in enumerate(sorted(entry.id for entry in content.categories), start=1)}
    listed = sorted(content.images, key=lambda image: image.id)
    place = {image.id: number for number, image in enumerate(listed)}
    owner = np.asarray([place[one.image_id] for one in content.annotations], np.int64)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(listed))
    sizes = np.asarray([(image.width, image.height) for image in listed], np.float64).reshape(-1, 2)
    frame = sizes[owner]

    boxes = np.zeros(len(owner), BOX)
    corners = np.asarray([one.bbox for one in content.annotations], np.float64).reshape(-1, 4)
    corners[:, 2:] += corners[:, :2]
    boxes["corners"] = (corners / np.tile(frame, 2))[order]
    boxes["label"] = np.asarray([labels[one.category_id] for one in content.annotations], np.uint8)[order]
    outlines = [_outline(content.annotations[number].segmentation, frame[number]) for number in order.tolist()]
    boxes["rings"] = [len(outline) for outline in outlines]
    boxes["first"] = _starts(boxes["rings"])
    lines = [ring for outline in outlines for ring in outline]
    rings = np.zeros(len(lines), RING)
    rings["points"] = [len(ring) for ring in lines]
    rings["first"] = _starts(rings["points"])

    images = np.zeros(len(listed), IMAGE)
    images["file"] = [image.file_name.encode() for image in listed]
    images["width"], images["height"] = sizes.T
    images["boxes"] = counts
    images["first"] = _starts(counts)
    return images, boxes, rings, np.concatenate([np.zeros((0, 2), np.float32), *lines])


def _outline(segmentation: msgspec.Raw, size: Array) -> list[Array]:
    """The rings of an annotation as parts of the picture, float32 [points, 2] each."""
    if not bytes(segmentation).startswith(b"["):
        return []
    rings = msgspec.json.decode(segmentation, type=list[list[float]])
    pairs = (np.asarray(ring[: len(ring) // 2 * 2], np.float64).reshape(-1, 2) for ring in rings)
    return [(points / size).astype(np.float32) for points in pairs if len(points) >= LEAST_POINTS]


def _starts(counts: Array) -> Array:
    """Where each of several successive runs of these lengths begins."""
    found: Array = np.cumsum(counts) - counts
    return found

"""The COCO twin: the real files, the real statistics, and an index that says what the annotations say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from making import checksum, differing, made
from PIL import Image

from milabench_ng.datasets.base import BINARY
from milabench_ng.datasets.images import coco_scenes
from milabench_ng.datasets.images.coco import Boxed, Coco, Outlined
from milabench_ng.datasets.prepare import FoundDataset, locate
from milabench_ng.model.errors import InputError

SCALE = 0.001  # 118 + 5 pictures
SEED = 7


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> FoundDataset:
    return made(Coco(), tmp_path_factory.mktemp("data"), SCALE, 2)


@pytest.fixture(scope="module")
def listed(coco: FoundDataset) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((coco.path / "annotations" / "instances_train2017.json").read_text())
    return found


def test_files_lie_where_the_real_ones_do(coco: FoundDataset, listed: dict[str, Any]) -> None:
    folders = {path.name for path in coco.path.iterdir() if path.is_dir()}
    assert folders == {"train2017", "val2017", "annotations", BINARY}
    names = {path.name for path in (coco.path / "train2017").iterdir()}
    assert len(names) == 118
    assert {image["file_name"] for image in listed["images"]} == names
    for image in listed["images"][:20]:
        with Image.open(coco.path / "train2017" / image["file_name"]) as picture:
            assert picture.size == (image["width"], image["height"])
    sizes = [path.stat().st_size for path in (coco.path / "train2017").iterdir()]
    assert 145_000 < np.mean(sizes) < 175_000  # 19.3 GB / 118,287 = 163 kB


def test_categories_are_those_of_coco(listed: dict[str, Any]) -> None:
    categories = listed["categories"]
    assert len(categories) == 80
    assert [(entry["id"], entry["name"]) for entry in (categories[0], categories[11], categories[-1])] == [
        (1, "person"),
        (13, "stop sign"),
        (90, "toothbrush"),
    ]
    assert {entry["supercategory"] for entry in categories} >= {"person", "vehicle", "indoor"}


def test_annotations_are_in_cocos_format(listed: dict[str, Any]) -> None:
    images = {image["id"]: image for image in listed["images"]}
    ids = [entry["id"] for entry in listed["annotations"]]
    assert len(set(ids)) == len(ids)
    for entry in listed["annotations"]:
        left, top, width, height = entry["bbox"]
        frame = images[entry["image_id"]]
        assert 0 <= left < left + width <= frame["width"]
        assert 0 <= top < top + height <= frame["height"]
        x, y = np.asarray(entry["segmentation"][0]).reshape(-1, 2).T
        assert (min(x), min(y), max(x), max(y)) == (left, top, left + width, top + height)
        shoelace = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
        assert shoelace == pytest.approx(entry["area"], abs=max(width, height))
        assert entry["category_id"] in coco_scenes.IDS


def test_boxes_are_as_many_and_as_large_as_in_train2017() -> None:
    scenes = [scene for number in range(40) for scene in coco_scenes.block(SEED, number)]
    counts = np.asarray([len(scene.boxes) for scene in scenes])
    assert counts.mean() == pytest.approx(7.27, abs=0.25)
    assert (counts == 0).mean() == pytest.approx(1021 / 118_287, abs=0.003)
    assert np.median(counts) == 4
    assert counts.max() > 60
    boxes = np.concatenate([scene.boxes for scene in scenes])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / 2
    assert (areas < 32**2).mean() == pytest.approx(0.41, abs=0.02)
    assert (areas > 96**2).mean() == pytest.approx(0.24, abs=0.02)
    assert (boxes[:, 4] == 0).mean() == pytest.approx(0.305, abs=0.01)
    assert len(np.unique(boxes[:, 4])) == 80
    assert len({(scene.width, scene.height) for scene in scenes}) == len(coco_scenes.SIZES)


def test_it_is_the_same_for_any_number_of_processes(coco: FoundDataset, tmp_path: Path) -> None:
    alone = made(Coco(), tmp_path, SCALE)
    assert checksum(alone) == checksum(coco)
    assert differing(Coco(), coco, SCALE) == ()


def test_samples_say_what_the_annotations_say(coco: FoundDataset, listed: dict[str, Any]) -> None:
    train = Coco().open(coco.path)
    boxed = sorted({entry["image_id"] for entry in listed["annotations"]})
    assert len(train) == len(boxed)  # type: ignore[arg-type]  # pictures without a box are left out
    for number in (0, len(boxed) // 2, len(boxed) - 1):
        picture, corners, labels = train[number]
        mine = [entry for entry in listed["annotations"] if entry["image_id"] == boxed[number]]
        expected = [(x, y, x + w, y + h) for x, y, w, h in (entry["bbox"] for entry in mine)]
        assert np.allclose(corners.numpy() * np.tile(picture.size, 2), expected, atol=1e-2)
        assert labels.tolist() == [coco_scenes.IDS.index(entry["category_id"]) + 1 for entry in mine]
    with pytest.raises(InputError, match="no split 'test'; it has: train, val"):
        Coco().open(coco.path, split="test")


REAL = {
    "info": {"description": "COCO 2017 Dataset"},
    "images": [
        {"id": 9, "file_name": "000000000009.jpg", "width": 200, "height": 100, "license": 3},
        {"id": 4, "file_name": "000000000004.jpg", "width": 50, "height": 40, "license": 3},
        {"id": 5, "file_name": "000000000005.jpg", "width": 10, "height": 10, "license": 3},
    ],
    "annotations": [
        {"id": 1, "image_id": 9, "category_id": 90, "bbox": [20.0, 10.0, 100.0, 45.5], "segmentation": [[1, 2]]},
        {"id": 2, "image_id": 4, "category_id": 1, "bbox": [0, 0, 50, 20], "iscrowd": 1, "segmentation": {"size": []}},
        {"id": 3, "image_id": 9, "category_id": 13, "bbox": [0.0, 0.0, 200.0, 100.0]},
    ],
    "categories": [{"id": 90}, {"id": 1}, {"id": 13}],
}


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A real set of three pictures, one of them without a box, below the data root `tmp_path`."""
    for name in ("train2017", "annotations"):
        (tmp_path / "coco" / name).mkdir(parents=True)
    for image in REAL["images"]:
        assert isinstance(image, dict)
        grey = Image.new("L", (image["width"], image["height"]))  # some of the real ones are
        grey.save(tmp_path / "coco" / "train2017" / image["file_name"])
    listed = tmp_path / "coco" / "annotations" / "instances_train2017.json"
    for split in ("train", "val"):
        listed.with_name(f"instances_{split}2017.json").write_text(json.dumps(REAL))
    return listed


@pytest.mark.usefixtures("real")
def test_the_annotations_of_a_real_set_are_converted(tmp_path: Path) -> None:
    assert locate(Coco(), tmp_path, 1.0).kind == "real"
    located = made(Coco(), tmp_path)
    assert located.kind == "real"
    train = Coco().open(located.path)
    assert len(train) == 2  # type: ignore[arg-type]
    picture, corners, labels = train[1]
    assert (picture.size, picture.mode) == ((200, 100), "RGB")
    assert np.allclose(corners, [[0.1, 0.1, 0.6, 0.555], [0, 0, 1, 1]])
    assert labels.tolist() == [3, 2]  # by the order of the categories' ids
    assert train[0][1].tolist() == [[0, 0, 1, 0.5]]


def test_they_are_converted_anew_when_they_change(real: Path, tmp_path: Path) -> None:
    made(Coco(), tmp_path)
    assert len(Coco().open(tmp_path / "coco")) == 2  # type: ignore[arg-type]
    real.write_text(json.dumps({**REAL, "annotations": []}))
    made(Coco(), tmp_path)
    assert len(Coco().open(tmp_path / "coco")) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["{", '{"images": []}', json.dumps({**REAL, "images": []})])
def test_annotations_that_are_none(real: Path, tmp_path: Path, text: str) -> None:
    real.write_text(text)
    with pytest.raises(InputError, match=r"instances_train2017\.json is no annotation file of COCO"):
        made(Coco(), tmp_path)


def test_outlines_are_those_of_the_annotations(coco: FoundDataset, listed: dict[str, Any]) -> None:
    boxed = Coco().open(coco.path)
    assert isinstance(boxed, Boxed)
    shown = Outlined(boxed, lambda picture, corners, labels, outlines: (picture, corners, labels, outlines))
    assert len(shown) == len(boxed)  # each object of the twin has one
    ids = sorted({entry["image_id"] for entry in listed["annotations"]})
    for number in (0, len(ids) - 1):
        picture, corners, labels, outlines = shown[number]
        assert all(np.array_equal(one, other) for one, other in zip(boxed[number][1:], (corners, labels), strict=True))
        mine = [entry["segmentation"] for entry in listed["annotations"] if entry["image_id"] == ids[number]]
        found = [[(ring * picture.size).flatten() for ring in outline] for outline in outlines]
        assert [[len(ring) for ring in outline] for outline in found] == [
            [len(ring) for ring in rings] for rings in mine
        ]
        assert np.allclose(
            [value for outline in found for ring in outline for value in ring],
            [value for rings in mine for ring in rings for value in ring],
            atol=1e-2,
        )
    sizes = {image["id"]: (image["width"], image["height"]) for image in listed["images"]}
    assert shown.upright.tolist() == [sizes[number][1] > sizes[number][0] for number in ids]


def test_crowds_and_lines_without_an_area_have_no_outline(real: Path, tmp_path: Path) -> None:
    """Two rings of which one is a line, a crowd, an object without segmentation, and one without a width."""
    rings = [[10, 0, 40, 0, 40, 50, 10, 50], [1, 2, 3, 4]]
    whole = {"category_id": 1, "bbox": [10, 0, 30, 50], "segmentation": rings}
    annotations = [
        {**whole, "id": 1, "image_id": 9},
        {**whole, "id": 2, "image_id": 9, "iscrowd": 1, "segmentation": {"counts": [1, 2], "size": [100, 200]}},
        {"id": 3, "image_id": 9, "category_id": 1, "bbox": [0, 0, 5, 5]},
        {**whole, "id": 4, "image_id": 4, "bbox": [10, 0, 0, 50]},
    ]
    real.write_text(json.dumps({**REAL, "annotations": annotations}))
    boxed = Coco().open(made(Coco(), tmp_path).path)
    assert isinstance(boxed, Boxed)
    assert len(boxed) == 2
    shown = Outlined(boxed, lambda _picture, corners, _labels, outlines: (corners.tolist(), outlines))
    assert len(shown) == 1
    corners, [[ring]] = shown[0]
    assert corners == [pytest.approx([0.05, 0, 0.2, 0.5])]
    assert np.allclose(ring, [[0.05, 0], [0.2, 0], [0.2, 0.5], [0.05, 0.5]])

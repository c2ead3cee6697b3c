"""ImageNet: photographs in one folder per class, `{train,val,test}/<class>/<file>`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor

from milabench_ng.datasets import manifest
from milabench_ng.datasets.base import DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.images import photographs
from milabench_ng.datasets.parallel import for_each

CLASSES = 1000
SPLITS = {"train": 100_000, "val": 5_000, "test": 5_000}
NOISE_SIDE = 512  # pixels


class ImageNet(DataSet):
    """ILSVRC 2012 (Russakovsky et al., IJCV 115, 2015). Twin: 110,000 pictures drawn as JPEG files of about 110 kB."""

    name = "imagenet"
    folder = "ImageNet"
    version = 1
    scalable = True
    classic: ClassVar[str | None] = "imagenet-classic"
    bytes_per_image: ClassVar[int] = 112_000  # measured over 2,000 images
    seconds_per_image: ClassVar[float] = 0.009

    def size(self, scale: float) -> Size:
        images = sum(self.scaled(SPLITS, scale).values())
        return Size(images, images * self.bytes_per_image, images * self.seconds_per_image)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        images = self.scaled(SPLITS, scale)
        for split, count in images.items():
            for label in range(min(count, CLASSES)):
                (place / split / _folder(label)).mkdir(parents=True)
        self.warm_up(seed)
        for_each(functools.partial(self._write, place, images, seed), sum(images.values()), processes, progress)

    def warm_up(self, seed: int) -> None:
        """Compute what all pictures share, before processes are started."""
        photographs.texture(seed)

    def picture(self, seed: int, item: int, label: int) -> bytes:
        """The JPEG file of one picture. Items number the pictures of all splits."""
        rng = random_stream(seed, 0, item)
        width, height = photographs.size_of(rng)
        drawn = photographs.photograph(rng, photographs.look(seed, label), width, height, photographs.texture(seed))
        return photographs.jpeg(drawn, int(rng.integers(87, 98)))

    def _write(self, place: Path, images: dict[str, int], seed: int, item: int) -> None:
        """Make one picture; labels are assigned in turn, so that classes are equally large."""
        split, index = _position(images, item)
        label = index % CLASSES
        (place / split / _folder(label) / f"{index}.jpeg").write_bytes(self.picture(seed, item, label))

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        opened = Listed if manifest.read(place) is not None else ImageFolder
        return opened(str(place / split), transform=transform or training_transform())

    def looks_real(self, place: Path) -> bool:
        train = place / "train"
        return train.is_dir() and any(child.is_dir() and any(child.iterdir()) for child in train.iterdir())


class ClassicImageNet(ImageNet):
    """The noise images of 2020 in place of ImageNet (`--classic-data`): 512 x 512, 158 kB.

    2020 multiplied normal deviates by 255 and let them wrap around in a byte, which is uniform noise to 1e-8.
    """

    name = "imagenet-classic"
    folder = "ImageNet-classic"
    kind = "classic"
    classic = None
    bytes_per_image = 158_000
    seconds_per_image = 0.004

    def warm_up(self, seed: int) -> None:
        """Do nothing: the pictures share nothing."""

    def picture(self, seed: int, item: int, label: int) -> bytes:  # noqa: ARG002  # noise has no class
        """Uniform noise at Pillow's defaults: quality 75, 4:2:0."""
        pixels = random_stream(seed, 0, item).integers(0, 256, (NOISE_SIDE, NOISE_SIDE, 3), np.uint8)
        return photographs.jpeg(Image.fromarray(pixels), 75)

    def looks_real(self, place: Path) -> bool:  # noqa: ARG002
        """No real set has this name."""
        return False


def training_transform(size: int | tuple[int, int] = 224) -> Compose:
    """The usual augmentation: a random crop scaled to `size`, randomly flipped, normalised.

    `size`: pixels of a side, or height and width.
    """
    return Compose(
        [
            RandomResizedCrop(size),
            RandomHorizontalFlip(),
            ToTensor(),
            Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )


class Listed(ImageFolder):  # type: ignore[misc]
    """ImageFolder over a twin: its files come from the listing, since walking 100,000 takes seconds on a cold disk."""

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:  # noqa: ARG002 - all alike
        """All classes, including those without a picture in a small split: a label means the same in each split."""
        names = [_folder(label) for label in range(CLASSES)]
        return names, {name: label for label, name in enumerate(names)}

    @staticmethod
    def make_dataset(directory: str | Path, class_to_idx: dict[str, int], *_: Any, **__: Any) -> list[tuple[str, int]]:
        """Path and label of each picture below `directory`, a split of the twin."""
        place, split = Path(directory).parent, Path(directory).name
        parts = ((entry.path, entry.path.split("/")) for entry in manifest.read_listing(place))
        return [(f"{place}/{path}", class_to_idx[names[1]]) for path, names in parts if names[0] == split]


def _folder(label: int) -> str:
    return f"{label:03d}"


def _position(images: dict[str, int], item: int) -> tuple[str, int]:
    """The split of an item and its number in it."""
    for split, count in images.items():
        if item < count:
            return split, item
        item -= count
    raise IndexError(item)

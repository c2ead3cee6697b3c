"""Hyperspectral images in the three forms that the data-loading study stores them in: a dataset for each form.

A file of an image holds the lengths of its sides, three 32-bit integers (big-endian), then its values. Beside it lie
the classes of its pixels, a byte each.
"""

from __future__ import annotations

import functools
import math
import struct
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset, get_worker_info

from milabench_ng.datasets.base import DataSet, Progress, Size, Transform
from milabench_ng.datasets.cache import drop
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.spectra import scenes
from milabench_ng.datasets.spectra.scenes import Cube
from milabench_ng.model.errors import InputError

HEADER = struct.Struct(">3i")
LEVEL = 5
"""Of zstd. The study's is 9, which takes 15 to 40 times as long to write, as long to read, and saves 1 to 3 %."""
SPLIT = "train"


class Hyperspectral(DataSet):
    """What the forms share. `data_scale` is the share of the 740 images."""

    version = 1
    scalable = True
    images: ClassVar[int] = 740
    shape: ClassVar[tuple[int, int, int]] = (480, 640, 100)
    """Height, width, channels."""
    dtype: ClassVar[type[np.floating[Any]]] = np.float32
    """Of the values as stored."""
    suffix: ClassVar[str]
    share: ClassVar[float] = 1.0
    """Bytes stored for each byte of the values."""
    seconds: ClassVar[float]
    """One core's for an image."""

    @abstractmethod
    def pack(self, cube: Cube) -> bytes:
        """The content of the file of an image [height, width, channels]."""

    @abstractmethod
    def unpack(self, content: bytes, target: npt.NDArray[Any], threads: int) -> None:
        """Write the values of a file's content into `target` [height, width, channels] of the form's type.

        `threads`: most that work at it.
        """

    def size(self, scale: float) -> Size:
        images, pixels = self._count(scale), self.shape[0] * self.shape[1]
        stored = math.prod(self.shape) * np.dtype(self.dtype).itemsize * self.share + pixels
        return Size(files=2 * images, bytes=round(images * stored), core_seconds=images * self.seconds)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        for_each(functools.partial(self._write, place, seed), self._count(scale), processes, progress)

    def open(self, place: Path, *, split: str = SPLIT, transform: Transform = None) -> Images:
        self.require_split(split, (SPLIT,))
        if transform is not None:
            raise TypeError(f"{self.name}: what reads the images transforms them")
        return Images(self, sorted(place.glob(f"*.{self.suffix}")))

    def _count(self, scale: float) -> int:
        return self.scaled({SPLIT: self.images}, scale)[SPLIT]

    def _write(self, place: Path, seed: int, number: int) -> None:
        (place / f"{number:04d}.{self.suffix}").write_bytes(self.pack(scenes.image(seed, number, self.shape)))
        (place / f"{number:04d}.labels").write_bytes(scenes.labels(seed, number, *self.shape[:2]).tobytes())


class HsiRaw(Hyperspectral):
    """Hyperspectral images as a camera writes them: big-endian float32, not compressed.

    In the order width, height, channels, upside down. Twin: low-rank spectra of 100 channels with noise, 480 x 640
    pixels, 19 classes.
    """

    name = "hsi-raw"
    folder = "hsi-raw"
    suffix = "dat"
    seconds = 1.2

    def pack(self, cube: Cube) -> bytes:
        height, width, channels = cube.shape
        stored = np.flip(cube.swapaxes(0, 1), 1)
        return HEADER.pack(width, height, channels) + stored.astype(">f4").tobytes()

    def unpack(self, content: bytes, target: npt.NDArray[Any], threads: int) -> None:  # noqa: ARG002  # one will do
        stored = np.frombuffer(content, ">f4", offset=HEADER.size).reshape(HEADER.unpack_from(content))
        target[:] = np.flip(stored, 1).swapaxes(0, 1)


class HsiRaw32(Hyperspectral):
    """Hyperspectral images of float32, compressed: Blosc with zstd and byte shuffle. Twin: the images of `hsi-raw`."""

    name = "hsi-raw32"
    folder = "hsi-raw32"
    suffix = "blosc"
    share = 0.77
    seconds = 2.0

    def pack(self, cube: Cube) -> bytes:
        blosc2 = _blosc2()
        values = np.ascontiguousarray(cube, self.dtype)
        packed: bytes = blosc2.compress(
            values,
            typesize=values.itemsize,
            clevel=LEVEL,
            filter=blosc2.Filter.SHUFFLE,
            codec=blosc2.Codec.ZSTD,
        )
        return HEADER.pack(*cube.shape) + packed

    def unpack(self, content: bytes, target: npt.NDArray[Any], threads: int) -> None:
        _blosc2().decompress2(memoryview(content)[HEADER.size :], dst=target, nthreads=threads)

    def open(self, place: Path, *, split: str = SPLIT, transform: Transform = None) -> Images:
        _blosc2()  # here, so that no loader process imports it while the clock runs
        return super().open(place, split=split, transform=transform)

    def libraries(self) -> dict[str, str]:
        return {"blosc2": str(_blosc2().__version__), "zstd level": str(LEVEL)}


class HsiRaw16(HsiRaw32):
    """Hyperspectral images of float16, compressed as `hsi-raw32`. Twin: the images of `hsi-raw`, rounded."""

    name = "hsi-raw16"
    folder = "hsi-raw16"
    dtype = np.float16
    share = 0.66
    seconds = 2.8


class Images(Dataset[tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]]):
    """The images of a set: values [height, width, channels] as stored, and the class of each pixel."""

    def __init__(self, form: Hyperspectral, files: Sequence[Path]) -> None:
        """Raises InputError if there is no image."""
        if not files:
            raise InputError(f"dataset {form.name}: it has no image. Delete its folder, and mnb generates it again")
        self.form = form
        self.files = [str(file) for file in files]
        self.shape = form.shape
        self.dtype = form.dtype
        self.keep_cached = True
        """Whether files stay in the page cache once they have been read."""
        self.threads = 1
        """That decompress an image in a loader process. Elsewhere there is one: a fork of a process whose blosc2 had
        threads may wait for them for ever."""

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
        values = np.empty(self.shape, self.dtype)
        return values, self.read(number, values)

    def read(self, number: int, target: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Write the values of image `number` into `target`; return the class of each pixel [height, width]."""
        threads = self.threads if get_worker_info() else 1
        self.form.unpack(self._content(self.files[number]), target, threads)
        labels = self._content(str(Path(self.files[number]).with_suffix(".labels")))
        return np.frombuffer(labels, np.uint8).reshape(self.shape[:2])

    def _content(self, file: str) -> bytes:
        with open(file, "rb", buffering=0) as opened:
            content: bytes = opened.read()
            if not self.keep_cached:
                drop(opened.fileno())
        return content


def _blosc2() -> ModuleType:
    """The module, which takes a second to import; it compresses with one thread, since several processes do."""
    try:
        import blosc2
    except ModuleNotFoundError:
        raise InputError(
            "compressed hyperspectral images need blosc2, which is not installed; "
            'pip install "milabench_ng[hyperspectral]"'
        ) from None
    blosc2.set_nthreads(1)
    module: ModuleType = blosc2
    return module

"""CREMI: electron micrographs of neural tissue and its synaptic clefts, as volumes in HDF5 files."""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from milabench_ng.datasets.base import DataSet, Progress, Samples, Size, Transform, random_stream
from milabench_ng.datasets.parallel import for_each
from milabench_ng.datasets.volumes import tissue
from milabench_ng.model.errors import InputError

Box = tuple[slice, slice, slice]
Shape = tuple[int, int, int]
RAW, CLEFTS = "volumes/raw", "volumes/labels/clefts"
FILES = {"train": "sample_A_20160501.hdf", "padded": "sample_A_padded_20160501.hdf"}
SHAPES: dict[str, Shape] = {"train": (125, 1250, 1250), "padded": (200, 3072, 3072)}
LEAST: Shape = (64, 512, 512)
"""The smallest volume of a twin: a training patch and a block with its halo fit in."""
CHUNK: Shape = (16, 128, 128)
SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""The first bytes of an HDF5 file (The HDF Group, "HDF5 File Format Specification", II.A)."""
LEVEL = 4
"""Of gzip: the loader processes decompress as much as with the real files."""
BACKGROUND = 0xFFFF_FFFF_FFFF_FFFF
"""The label of voxels outside of clefts, as in the real files."""
RESOLUTION = (40.0, 4.0, 4.0)
"""Nanometres per voxel."""
BYTES_PER_VOXEL = {"train": 0.84, "padded": 0.83}  # in whole chunks on disk; measured
SECONDS_PER_VOXEL = {"train": 7e-8, "padded": 5e-8}


class Cremi(DataSet):
    """CREMI sample A (cremi.org, MICCAI 2016) and its padded volume. Twin: noise that compresses as micrographs do.

    `data_scale` is the share of the voxels. No side of a twin is smaller than `LEAST`. For the real set, put the files
    of both names below `cremi/` in the data root.
    """

    name = "cremi"
    folder = "cremi"
    version = 1
    scalable = True

    def size(self, scale: float) -> Size:
        voxels = {split: math.prod(_whole(_shape(split, scale))) for split in FILES}
        return Size(
            files=len(FILES),
            bytes=round(sum(BYTES_PER_VOXEL[split] * count for split, count in voxels.items())),
            core_seconds=sum(SECONDS_PER_VOXEL[split] * count for split, count in voxels.items()),
        )

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        h5py = _h5py()
        rows = [(split, z, y) for split in FILES for z, y in _rows(_shape(split, scale))]
        for_each(functools.partial(_write, place, scale, seed, rows), len(rows), processes, progress)
        for split in FILES:
            shape = _shape(split, scale)
            with h5py.File(place / FILES[split], "w", track_order=False) as file:
                _attributes(file, seed=seed, generator=self.version)
                _join(place, split, shape, _dataset(file, RAW, shape, np.uint8))
                if split == "train":
                    _join(place, split, shape, _dataset(file, CLEFTS, shape, np.uint64))

    def open(self, place: Path, *, split: str = "train", transform: Transform = None) -> Samples:
        self.require_split(split, FILES)
        return Volume(place / FILES[split], labelled=split == "train", transform=transform or _as_it_is)

    def looks_real(self, place: Path) -> bool:
        return all(_is_hdf5(place / name) for name in FILES.values())

    def libraries(self) -> dict[str, str]:
        return {"hdf5": _h5py().version.hdf5_version, "zlib": zlib.ZLIB_RUNTIME_VERSION}


class Volume(Dataset[Any]):
    """A volume on disk; a sample is what a box of it holds, `transform(raw, foreground)`.

    Raw: uint8 [D, H, W]. Foreground: bool [D, H, W], the voxels of clefts; None in a volume without labels. Each sample
    opens the file, so that processes share no state of the HDF5 library. Asking for its shape looks for its arrays.
    """

    raw, labels = RAW, CLEFTS
    """Where the arrays are in the file."""

    def __init__(self, file: Path, labelled: bool, transform: Callable[..., Any]) -> None:
        self.file = file
        self.labelled = labelled
        self.transform = transform
        with self._opened():
            pass  # raises what a damaged file raises

    @property
    def _background(self) -> int:
        return BACKGROUND if self.labels == CLEFTS else 0

    def at(self, raw: str, labels: str = CLEFTS) -> Self:
        """This volume, with its arrays elsewhere in the file."""
        self.raw, self.labels = raw, labels
        return self

    @functools.cached_property
    def shape(self) -> Shape:
        """Voxels of each side: sections, rows, columns. Raises InputError if the file does not hold such a volume."""
        keys = (self.raw, self.labels) if self.labelled else (self.raw,)
        with self._opened() as opened:
            shapes = [_shape_of(opened, key, self.file, keys) for key in keys]
        if shapes[0] != shapes[-1]:
            raise InputError(
                f"{self.file}: {self.raw} is of shape {shapes[0]} and {self.labels} of {shapes[1]}: not one volume. "
                "Replace the file"
            )
        return shapes[0]

    def __len__(self) -> int:
        """Sections."""
        return self.shape[0]

    def __getitem__(self, box: Box) -> Any:
        with self._opened() as opened:
            raw = opened[self.raw][box]
            return self.transform(raw, opened[self.labels][box] != self._background if self.labelled else None)

    def _opened(self) -> Any:
        """Without a lock, which a read-only or network file system may not have."""
        return _h5py().File(self.file, "r", locking=False)


def _as_it_is(raw: npt.NDArray[np.uint8], foreground: npt.NDArray[np.bool_] | None) -> Any:
    return raw, foreground


def _is_hdf5(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(SIGNATURE)) == SIGNATURE


def _h5py() -> ModuleType:
    try:
        import h5py  # an extra: the catalogue lists this set without it
    except ModuleNotFoundError:
        raise InputError(
            'dataset cremi: its HDF5 files need h5py, which is not installed. Run: pip install "milabench_ng[volumes]"'
        ) from None
    module: ModuleType = h5py
    return module


def _shape_of(opened: Any, key: str, file: Path, keys: tuple[str, ...]) -> Shape:
    """The shape of one array of a volume."""
    import h5py

    found = opened.get(key)
    if not isinstance(found, h5py.Dataset) or found.ndim != 3:
        raise InputError(
            f"{file}: there is no {key} with three dimensions; expected {' and '.join(keys)}. Replace the file"
        )
    depth, height, width = found.shape
    return int(depth), int(height), int(width)


def _shape(split: str, scale: float) -> Shape:
    """The volume's sides at a scale; all shrink alike, and none below the least."""
    sides = [max(least, round(side * scale ** (1 / 3))) for side, least in zip(SHAPES[split], LEAST, strict=True)]
    return sides[0], sides[1], sides[2]


def _whole(shape: Shape) -> Shape:
    """The shape in whole chunks, which HDF5 stores."""
    depth, height, width = (-(-side // chunk) * chunk for side, chunk in zip(shape, CHUNK, strict=True))
    return depth, height, width


def _rows(shape: Shape) -> Iterator[tuple[int, int]]:
    """Where the rows of chunks begin: section and row."""
    depth, height, _ = _whole(shape)
    return itertools.product(range(0, depth, CHUNK[0]), range(0, height, CHUNK[1]))


def _part(place: Path, split: str, key: str, z: int, y: int) -> Path:
    return place / f"{split}-{key.rpartition('/')[2]}-{z}-{y}"


def _write(place: Path, scale: float, seed: int, rows: list[tuple[str, int, int]], item: int) -> None:
    """Make one row of chunks, compressed, and its labels."""
    split, z, y = rows[item]
    width = _whole(_shape(split, scale))[2]
    own = int(random_stream(seed, list(FILES).index(split)).integers(1 << 62))
    box = (z, y, 0), (CHUNK[0], CHUNK[1], width)
    _compress(_part(place, split, RAW, z, y), tissue.micrograph(own, *box))
    if split == "train":
        numbers = np.uint64(1 + item * width // CHUNK[2]) + np.arange(width, dtype=np.uint64) // np.uint64(CHUNK[2])
        labels = np.where(tissue.clefts(own, *box), numbers, np.uint64(BACKGROUND))
        _compress(_part(place, split, CLEFTS, z, y), labels)


def _compress(file: Path, values: npt.NDArray[Any]) -> None:
    """Write the chunks of a row one after the other, each as its length and its bytes."""
    with file.open("wb") as stream:
        for x in range(0, values.shape[2], CHUNK[2]):
            packed = zlib.compress(np.ascontiguousarray(values[:, :, x : x + CHUNK[2]]).tobytes(), LEVEL)
            stream.write(len(packed).to_bytes(8, "little") + packed)


def _join(place: Path, split: str, shape: Shape, target: Any) -> None:
    """Move the chunks that the processes have made into the HDF5 file."""
    key = target.name.removeprefix("/")
    for z, y in _rows(shape):
        part = _part(place, split, key, z, y)
        with part.open("rb") as stream:
            for x in range(0, shape[2], CHUNK[2]):
                size = int.from_bytes(stream.read(8), "little")
                target.id.write_direct_chunk((z, y, x), stream.read(size))
        part.unlink()


def _dataset(file: Any, key: str, shape: Shape, kind: type[np.generic]) -> Any:
    """An empty array; without times, so that equal content makes equal bytes."""
    made = file.create_dataset(
        key, shape, kind, chunks=CHUNK, compression="gzip", compression_opts=LEVEL, track_times=False
    )
    _attributes(made, resolution=RESOLUTION)
    return made


def _attributes(target: Any, **values: Any) -> None:
    for name, value in values.items():
        target.attrs[name] = value

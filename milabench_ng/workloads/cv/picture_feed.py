"""Where pictures come from: the device, the tenant's memory, or files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

from milabench_ng.bench import Bench, DataBy, Derived
from milabench_ng.datasets.images.imagenet import ImageNet, training_transform
from milabench_ng.model.units import MIB

Source = Literal["resident", "memory", "loader"]
"""``resident``: one batch that stays on the device. ``memory``: noise from loader processes. ``loader``: files."""
FILES = DataBy(option="source", sets={"loader": ImageNet.name})
NATIVE = (Derived("MPx/s", "rate * width * height / 1e6"), Derived("batches/s", "rate / batch_size"))
"""The units that the published benchmark shows beside images per second."""
POOL_BYTES = 32 * MIB
SAMPLES = 100_000
"""Pictures in an epoch from memory."""
STEP = 104_729
"""Bytes between the beginnings of pictures with successive numbers; a prime, so that an epoch meets many."""


class NoisePool(Dataset[Tensor]):
    """Uniform noise in bytes: each picture is cut out of one pool, at a place that follows from its number.

    To draw 224 x 224 pixels anew takes a core 1.6 ms; to cut them out and copy them into the batch takes 0.04 ms. The
    pool is made before the loader processes are forked, so they share its pages.
    """

    def __init__(self, height: int, width: int, seed: int) -> None:
        self._shape = (3, height, width)
        self._bytes = 3 * height * width
        generator = torch.Generator().manual_seed(seed)
        self._pool = torch.randint(256, (POOL_BYTES + self._bytes,), dtype=torch.uint8, generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> Tensor:
        """Bytes [3, height, width]; a view of the pool."""
        begin = number * STEP % POOL_BYTES
        return self._pool[begin : begin + self._bytes].view(self._shape)


class PictureFeed:
    """Batches of pictures [N, 3, height, width], on the device, in the type and memory format that a model takes."""

    def __init__(
        self, bench: Bench, source: Source, shape: tuple[int, int, int], dtype: torch.dtype, channels_last: bool
    ) -> None:
        """``shape``: pictures, height, width. ``dtype``: that of the weights."""
        self._bench = bench
        self._source = source
        self._count, self._height, self._width = shape
        self._dtype = dtype
        self._format = torch.channels_last if channels_last else torch.contiguous_format

    def batches(self) -> Iterable[Any]:
        """Make what ``bench.measure`` fetches; `ready` makes pictures of it."""
        bench, size = self._bench, (self._height, self._width)
        match self._source:
            case "resident":
                return self._resident()
            case "memory":
                return bench.loader(self._count, samples=NoisePool(*size, bench.seed))
            case "loader":
                return bench.loader(self._count, transform=training_transform(size))

    def ready(self, batch: Any) -> Tensor:
        """The pictures of a batch; bytes become numbers from 0 to 1."""
        pictures: Tensor = batch if isinstance(batch, Tensor) else batch[0]
        moved = pictures.to(self._dtype, memory_format=self._format)
        return moved.div_(255) if pictures.dtype is torch.uint8 else moved

    def example(self) -> Tensor:
        """A batch of noise from 0 to 1."""
        shape = (self._count, 3, self._height, self._width)
        return self.ready(torch.rand(shape, device=self._bench.device))

    def _resident(self) -> Iterator[Tensor]:
        """The first batch is that of all tenants; from the second step on, torch's seed is the tenant's own."""
        yield self.example()
        kept = self.example()
        while True:
            yield kept

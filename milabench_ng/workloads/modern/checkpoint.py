"""Saving and restoring a model's state: from the device to the storage and back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.datasets.cache import resident_fraction
from milabench_ng.model.units import MIB
from milabench_ng.workloads.modern.shard_files import load, save

MODEL_MIB = 96.4e9 / MIB
"""Masters and moments of a model of 8 billion parameters, 12 bytes each, without its bf16 weights."""


@workload(
    unit="MiB",
    most_items="shard_mib",
    bound="io",
    stores=True,
    notes=("save_s", "restore_s", "cached"),
    derived=(
        Derived("MiB/s saved", "shard_mib / save_s"),
        Derived("MiB/s restored", "shard_mib / restore_s"),
        Derived("s to save 8B", f"{MODEL_MIB:.0f} * save_s / shard_mib"),
        Derived("s to restore 8B", f"{MODEL_MIB:.0f} * restore_s / shard_mib"),
        Derived("% read from the page cache", "100 * cached"),
    ),
)
def checkpoint(
    bench: Bench,
    *,
    shards: Annotated[int, Meta(ge=2)] = 16,
    shard_mib: Count = 256,
) -> None:
    """Save shards of random bits from the device, and restore earlier ones: bound by the storage.

    A step copies a shard to the host, writes it, syncs the file, renames it, syncs the folder and drops its pages from
    the page cache; then it reads the shard written half a round earlier, copies it to the device and compares digests.
    The files lie below the data root. An item is one MiB, saved and restored. The seconds for 8B are those of one
    tenant for masters and moments of a model of 8 billion parameters, 96.4 GB. What the page cache held all the same is
    told. A disk, or the host of a virtual one, may have a cache of its own, which nobody sees from here. Timed:
    everything.

    Options:
        shards: files, written in turn.
        shard_mib: MiB of each.
    """
    content = random_shards(bench, shards, shard_mib * MIB)
    check = bench.verifier
    check.begin("GB", "random bits")
    with bench.storage((shards + 1) * shard_mib * MIB) as folder:
        saved = SavedShards(bench, folder, content)
        for number in range(shards):
            saved.save(number)
        for number in bench.measure(endless(shards), count=shard_mib):
            with bench.notes.timed("save_s"):
                saved.save(number)
            earlier = (number - shards // 2) % shards
            cached = saved.cached(earlier)
            if cached is not None:
                bench.notes.add("cached", cached)
            with bench.notes.timed("restore_s"):
                read = saved.restore(earlier)
                wrong = not torch.equal(read, saved.digests[earlier])  # waits for the device
            check.note(f"shard {earlier}", torch.tensor(wrong), shard_mib * MIB / 1e9)
            bench.result(torch.stack((saved.digests[number], read)))


def random_shards(bench: Bench, shards: int, size: int) -> Tensor:
    """Words [shards, words] of random bits on the device; ``size``: bytes of a shard."""
    return torch.randint(256, (shards, size), dtype=torch.uint8, device=bench.device).view(torch.int64)


def endless(shards: int) -> Iterator[int]:
    """The numbers of all shards, over and over."""
    while True:
        yield from range(shards)


class SavedShards:
    """Shards on the device and in files, and their digests."""

    def __init__(self, bench: Bench, folder: Path, content: Tensor) -> None:
        """``content``: words [shards, words]."""
        self._files = [folder / f"{number}.shard" for number in range(len(content))]
        self._content = content
        pinned = bench.device.type == "cuda"
        self._out, self._in = (torch.empty(content.shape[1], dtype=content.dtype, pin_memory=pinned) for _ in range(2))
        self._factors = 2 * torch.arange(content.shape[1], device=bench.device) + 1
        self.digests = [self._digest(shard) for shard in content]

    def save(self, number: int) -> None:
        """Copy a shard from the device to its file."""
        self._out.copy_(self._content[number])
        save(self._files[number], self._out)

    def restore(self, number: int) -> Tensor:
        """Copy a file to the device; return its digest, which is that of the shard unless something is wrong."""
        load(self._files[number], self._in)
        return self._digest(self._in.to(self._content.device))

    def cached(self, number: int) -> float | None:
        """The share of a file that the page cache holds; None if the kernel does not tell."""
        return resident_fraction([self._files[number]])

    def _digest(self, words: Tensor) -> Tensor:
        """The sum of all words, modulo 2^64, each times an odd number of its own: any flipped bit changes it."""
        return (words * self._factors).sum()

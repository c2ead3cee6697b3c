"""The page cache: evict files, load them, measure how much of them it holds."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 16
SAMPLE = 256

_PROT_READ = 1
_MAP_SHARED = 1
_LOWEST_BIT = bytes(state & 1 for state in range(256))
_MAP_FAILED = ctypes.c_void_p(-1).value


def evict(files: Sequence[Path]) -> None:
    """Drop the clean pages of `files` (posix_fadvise(2), POSIX_FADV_DONTNEED); mapped pages stay."""
    _each(_evict, files)


def warm(files: Sequence[Path]) -> None:
    """Read `files` once, so that they are in the page cache as far as memory allows."""
    _each(_read, files)


def resident_fraction(files: Sequence[Path]) -> float | None:
    """The part of the bytes of `files` that the page cache holds, 0 to 1, from `SAMPLE` random files.

    None if it cannot be measured: since Linux 5.2 mincore(2) is truthful only for files that the caller owns or may
    write, and empty files have no pages.
    """
    chosen = random.SystemRandom().sample(files, min(SAMPLE, len(files)))  # nobody knows beforehand which
    counts = [_pages(path) for path in chosen if os.access(path, os.W_OK)]
    total = sum(pages for _, pages in counts)
    return sum(resident for resident, _ in counts) / total if total else None


def drop(descriptor: int) -> None:
    """Drop the clean pages of an open file."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _each(action: Callable[[Path], None], files: Sequence[Path]) -> None:
    def part(start: int) -> None:
        for path in files[start::THREADS]:
            action(path)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(part, range(THREADS)))  # raises what a part raised


def _evict(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        drop(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> None:
    buffer = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _pages(path: Path) -> tuple[int, int]:
    """Resident and all pages of one file, by mincore(2) on a mapping that touches none of them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        length = os.fstat(descriptor).st_size
        if length == 0:
            return 0, 0
        address = libc.mmap(None, length, _PROT_READ, _MAP_SHARED, descriptor, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)
    try:
        pages = -(-length // mmap.PAGESIZE)
        states = ctypes.create_string_buffer(pages)
        if libc.mincore(address, length, states) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        return states.raw.translate(_LOWEST_BIT).count(1), pages
    finally:
        libc.munmap(address, length)

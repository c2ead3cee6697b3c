"""The page cache, measured on real files."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from milabench_ng.datasets import cache


def test_evicted_files_are_cold_and_read_files_are_warm(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(20)]
    for path in files:
        path.write_bytes(os.urandom(100_000))
    os.sync()
    assert cache.resident_fraction(files) == 1.0
    cache.evict(files)
    if cache.resident_fraction(files) == 1.0:
        pytest.skip("this file system lives in memory: nothing can be evicted")
    assert cache.resident_fraction(files) == 0.0
    cache.warm(files[:5])
    assert cache.resident_fraction(files) == 0.25
    cache.warm(files)
    assert cache.resident_fraction(files) == 1.0


def test_a_sample_is_drawn_from_all_files(tmp_path: Path) -> None:
    """511 files are not quite twice as many as are looked at."""
    files = [tmp_path / str(number) for number in range(511)]
    for path in files:
        path.write_bytes(bytes(mmap.PAGESIZE))
    os.sync()
    cache.evict(files)
    if cache.resident_fraction(files) == 1.0:
        pytest.skip("this file system lives in memory: nothing can be evicted")
    cache.warm(files[:256])
    assert cache.resident_fraction(files) == pytest.approx(256 / 511, abs=0.15)  # seven standard deviations
    cache.warm(files)
    assert cache.resident_fraction(files) == 1.0
    cache.evict(files[:256])
    assert cache.resident_fraction(files) == pytest.approx(255 / 511, abs=0.15)


def test_nothing_to_measure_is_not_a_number(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert cache.resident_fraction([tmp_path / "empty"]) is None
    assert cache.resident_fraction([]) is None

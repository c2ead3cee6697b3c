"""The hyperspectral images that are generated, and what the three forms make of them."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from making import differing, made

from milabench_ng.datasets.spectra import scenes
from milabench_ng.datasets.spectra.hyperspectral import HsiRaw, HsiRaw16, HsiRaw32, Images
from milabench_ng.model.errors import InputError

blosc2 = pytest.importorskip("blosc2", reason="the extra hyperspectral is not installed")
SHAPE = (32, 64, 100)


class Raw(HsiRaw):
    """Five small images."""

    shape, images = SHAPE, 5


class Raw32(HsiRaw32):
    """The same, compressed."""

    shape, images = SHAPE, 5


class Raw16(HsiRaw16):
    """The same, rounded and compressed."""

    shape, images = SHAPE, 5


FORMS = (Raw, Raw32, Raw16)


def test_the_three_forms_decode_to_the_same_values(tmp_path: Path) -> None:
    raw, raw32, raw16 = (form().open(made(form(), tmp_path).path) for form in FORMS)
    assert len(raw) == len(raw32) == len(raw16) == 5
    for number in range(5):
        (values, classes), (same, same_classes), (halved, half_classes) = (each[number] for each in (raw, raw32, raw16))
        assert (values.dtype, same.dtype, halved.dtype) == (np.float32, np.float32, np.float16)
        assert np.array_equal(values, same)
        assert np.array_equal(values.astype(np.float16), halved)
        assert np.array_equal(classes, same_classes)
        assert np.array_equal(classes, half_classes)
        assert np.array_equal(values, scenes.image(20200801, number, SHAPE))


def test_any_number_of_threads_decompresses_the_same(tmp_path: Path) -> None:
    form = Raw32()
    content = (made(Raw32(), tmp_path).path / "0002.blosc").read_bytes()
    alone, together = (np.zeros(SHAPE, np.float32) for _ in range(2))
    form.unpack(content, alone, 1)
    form.unpack(content, together, 3)
    assert alone.any()
    assert np.array_equal(alone, together)


def test_only_loader_processes_decompress_with_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that forks must not: blosc2 in its child would wait for threads that are not there."""
    images = Raw32().open(made(Raw32(), tmp_path).path)
    images.threads = 4
    seen: list[int] = []
    monkeypatch.setattr(images.form, "unpack", lambda _content, _target, threads: seen.append(threads))
    images[0]
    monkeypatch.setattr("milabench_ng.datasets.spectra.hyperspectral.get_worker_info", object)
    images[0]
    assert seen == [1, 4]


def test_a_raw_file_is_big_endian_by_columns_and_upside_down(tmp_path: Path) -> None:
    place = made(Raw(), tmp_path).path
    content = (place / "0003.dat").read_bytes()
    assert content[:12] == bytes([0, 0, 0, 64, 0, 0, 0, 32, 0, 0, 0, 100])
    values = scenes.image(20200801, 3, SHAPE)
    for height, width, channel in ((0, 0, 0), (31, 0, 5), (7, 63, 99)):
        at = 12 + 4 * ((width * 32 + 31 - height) * 100 + channel)
        assert np.frombuffer(content[at : at + 4], ">f4")[0] == values[height, width, channel]


def test_the_same_bytes_for_any_number_of_processes(tmp_path: Path) -> None:
    for form in FORMS:
        alone, together = made(form(), tmp_path / "1").path, made(form(), tmp_path / "2", processes=2).path
        names = sorted(path.name for path in alone.iterdir() if not path.name.startswith("mnb-"))
        assert len(names) == 10
        assert all((alone / name).read_bytes() == (together / name).read_bytes() for name in names)


def test_the_scale_is_the_share_of_the_images_and_the_level_is_recorded(tmp_path: Path) -> None:
    place = made(Raw16(), tmp_path, 0.4)
    assert len(Raw16().open(place.path)) == 2
    assert differing(Raw16(), place, 0.4) == ()
    assert place.manifest is not None
    assert (place.manifest.libraries["zstd level"], place.manifest.files) == ("5", 4)
    assert HsiRaw().size(0.0325).files == 48  # 24 images
    assert HsiRaw().size(1.0).bytes == pytest.approx(91.2e9, rel=0.01)


def test_values_do_not_change_unnoticed() -> None:
    """Exact up to the noise, and one rounding each from there: the same on every machine. Whoever changes them raises
    Hyperspectral.version."""
    drawn = scenes.image(1, 2, SHAPE)
    classes = scenes.labels(1, 2, *SHAPE[:2])
    assert (zlib.crc32(drawn.tobytes()), zlib.crc32(classes.tobytes())) == (2480725999, 2837502064)


def test_sums_of_products_are_exact() -> None:
    """Integers below 2^24, so that every order of summation gives the same."""
    assert scenes.ENDMEMBERS * scenes.LEVELS**2 < 2**24
    spectra = scenes.spectra(1, 100)
    assert np.array_equal(spectra, np.rint(spectra))
    assert spectra.min() > 0
    assert spectra.max() <= scenes.LEVELS


def test_images_are_smooth_low_rank_and_noisy() -> None:
    drawn = scenes.image(1, 0, (64, 64, 100)).reshape(-1, 100)
    assert drawn.mean() == pytest.approx(0.011, rel=0.3)
    singular = np.linalg.svd(drawn, compute_uv=False)
    smooth = np.sqrt((singular[: scenes.ENDMEMBERS] ** 2).sum())
    noise = np.sqrt((singular[scenes.ENDMEMBERS :] ** 2).sum())
    assert noise / smooth == pytest.approx(scenes.NOISE, rel=0.1)


def test_most_pixels_are_valid_and_all_classes_occur() -> None:
    found = np.stack([scenes.labels(1, number, 480, 640) for number in range(4)])
    assert (found != scenes.INVALID).mean() == pytest.approx(0.7, abs=0.1)
    assert set(np.unique(found)) == {*range(scenes.CLASSES), scenes.INVALID}


def test_what_has_been_read_leaves_the_page_cache_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[int] = []
    monkeypatch.setattr("milabench_ng.datasets.spectra.hyperspectral.drop", dropped.append)
    images = Raw().open(made(Raw(), tmp_path).path)
    images[0]
    assert not dropped
    images.keep_cached = False
    images[0]
    assert len(dropped) == 2  # values and classes


def test_a_folder_without_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hsi-raw: it has no image"):
        Images(Raw(), [])
    with pytest.raises(InputError, match="no split 'test'"):
        Raw().open(tmp_path, split="test")


def test_a_missing_package_is_named_before_anything_is_generated(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "blosc2.py").write_text("raise ModuleNotFoundError('blosc2')")
    command = [sys.executable, "-m", "milabench_ng", "prepare", "io", "--data-scale", "0.002", "-d", str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "compressed hyperspectral images need blosc2, which is not installed" in done.stderr
    assert not list(tmp_path.glob("*hsi*")) + list(tmp_path.glob("scale-*"))

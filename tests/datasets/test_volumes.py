"""The volumes that are generated, and what is read of them."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from making import checksum, differing, made

from milabench_ng.datasets.prepare import FoundDataset, locate
from milabench_ng.datasets.volumes import tissue
from milabench_ng.datasets.volumes.cremi import BACKGROUND, CLEFTS, RAW, Cremi, Volume
from milabench_ng.model.errors import InputError

h5py = pytest.importorskip("h5py", reason="the extra volumes is not installed")
pytestmark = pytest.mark.slow
SCALE = 0.001


@pytest.fixture(scope="module")
def cremi(tmp_path_factory: pytest.TempPathFactory) -> FoundDataset:
    return made(Cremi(), tmp_path_factory.mktemp("data"), SCALE, 2)


def test_the_twin_has_the_real_files_names_keys_and_types(cremi: FoundDataset) -> None:
    with h5py.File(cremi.path / "sample_A_20160501.hdf") as file:
        assert (file[RAW].dtype, file[CLEFTS].dtype) == (np.uint8, np.uint64)
        assert file[RAW].shape == file[CLEFTS].shape == (64, 512, 512)  # the least
        assert (file[RAW].chunks, file[RAW].compression, file[RAW].compression_opts) == ((16, 128, 128), "gzip", 4)
        assert file[RAW].attrs["resolution"].tolist() == [40, 4, 4]
        assert (file.attrs["seed"], file.attrs["generator"]) == (20200801, Cremi.version)
        labels = file[CLEFTS][:]
    assert (labels == BACKGROUND).mean() == pytest.approx(0.995, abs=0.005)
    assert len(np.unique(labels)) > 50  # each chunk has a number of its own
    with h5py.File(cremi.path / "sample_A_padded_20160501.hdf") as file:
        assert list(file["volumes"]) == ["raw"]


def test_it_costs_what_micrographs_cost(cremi: FoundDataset) -> None:
    with h5py.File(cremi.path / "sample_A_padded_20160501.hdf") as file:
        raw = file[RAW][:]
        assert 1.15 < raw.size / file[RAW].id.get_storage_size() < 1.4
    assert raw.mean() == pytest.approx(128, abs=10)
    assert raw.std() == pytest.approx(35, abs=6)


def test_all_its_sides_shrink_alike_and_no_further_than_a_block() -> None:
    voxels = {scale: Cremi().size(scale).bytes for scale in (1.0, 0.5, 0.125, SCALE, SCALE / 10)}
    assert voxels[0.5] == pytest.approx(voxels[1.0] / 2, rel=0.1)
    assert voxels[0.125] == pytest.approx(voxels[1.0] / 8, rel=0.2)
    assert voxels[SCALE] == voxels[SCALE / 10]
    assert voxels[1.0] == pytest.approx(1.89e9 * 0.84, rel=0.15)


def test_the_same_bytes_for_any_number_of_processes(cremi: FoundDataset, tmp_path: Path) -> None:
    alone = made(Cremi(), tmp_path, SCALE)
    assert checksum(alone) == checksum(cremi)
    assert alone.manifest.libraries["zlib"] == zlib.ZLIB_RUNTIME_VERSION
    assert sorted(path.name for path in alone.path.iterdir()) == [
        "mnb-files.json",
        "mnb-manifest.json",
        "sample_A_20160501.hdf",
        "sample_A_padded_20160501.hdf",
    ]
    assert differing(Cremi(), alone, SCALE) == ()


def test_voxels_do_not_change_unnoticed() -> None:
    """Integer arithmetic: the same on every machine. Whoever changes them raises Cremi.version."""
    drawn = tissue.micrograph(1, (16, 128, 0), (16, 128, 256))
    spots = tissue.clefts(1, (0, 0, 0), (16, 128, 256))
    assert (zlib.crc32(drawn.tobytes()), int(spots.sum())) == (1986547863, 3007)


def test_smooth_noise_fits_together() -> None:
    whole = tissue.clefts(5, (0, 0, 0), (32, 256, 256))
    corner = tissue.clefts(5, (16, 128, 128), (16, 128, 128))
    assert np.array_equal(whole[16:, 128:, 128:], corner)
    assert whole.any()


def test_a_box_is_what_the_file_holds_there(cremi: FoundDataset) -> None:
    volume = Cremi().open(cremi.path)
    assert isinstance(volume, Volume)
    assert (volume.shape, len(volume)) == ((64, 512, 512), 64)
    raw, foreground = volume[10:30, 100:200, 300:301]
    with h5py.File(cremi.path / "sample_A_20160501.hdf") as file:
        assert np.array_equal(raw, file[RAW][10:30, 100:200, 300:301])
        assert np.array_equal(foreground, file[CLEFTS][10:30, 100:200, 300:301] != BACKGROUND)
    padded = Cremi().open(cremi.path, split="padded", transform=lambda raw, foreground: (raw.shape, foreground))
    assert padded[0:2, 0:3, 0:4] == ((2, 3, 4), None)
    with pytest.raises(InputError, match="no split 'all'; it has: train, padded"):
        Cremi().open(cremi.path, split="all")


def real(place: Path, name: str, **arrays: tuple[tuple[int, ...], type]) -> None:
    """A file as the real set may have it: not chunked, other keys, other attributes."""
    place.mkdir(parents=True, exist_ok=True)
    with h5py.File(place / name, "w") as file:
        file.create_dataset("annotations/ids", (3,), "u8")
        for key, (shape, kind) in arrays.items():
            file.create_dataset({"raw": RAW, "clefts": CLEFTS}[key], shape, kind)


def test_real_files_in_the_place_of_the_twin_are_read(tmp_path: Path) -> None:
    shape = (20, 64, 64)
    place = tmp_path / "cremi"
    real(place, "sample_A_20160501.hdf", raw=(shape, np.uint8), clefts=(shape, np.uint64))
    assert locate(Cremi(), tmp_path, 1.0).kind == "absent"
    real(place, "sample_A_padded_20160501.hdf", raw=(shape, np.uint8))
    assert made(Cremi(), tmp_path).kind == "real"
    assert Cremi().open(place)[0:1, 0:2, 0:2][1].tolist() == [[[True] * 2] * 2]  # label 0 is not the background


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"raw": ((4, 4, 4), np.uint8)}, "there is no volumes/labels/clefts with three dimensions"),
        ({"raw": ((4, 4), np.uint8)}, "there is no volumes/raw with three dimensions"),
        (
            {"raw": ((4, 4, 4), np.uint8), "clefts": ((4, 4, 5), np.uint64)},
            r"volumes/raw is of shape \(4, 4, 4\) and volumes/labels/clefts of \(4, 4, 5\): not one volume",
        ),
    ],
)
def test_files_that_hold_no_such_volume(
    tmp_path: Path, arrays: dict[str, tuple[tuple[int, ...], type]], message: str
) -> None:
    real(tmp_path, "sample_A_20160501.hdf", **arrays)
    with pytest.raises(InputError, match=message):
        Cremi().open(tmp_path).shape  # noqa: B018


def test_without_h5py_the_set_is_listed_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert Cremi().size(1.0).files == 2
    with pytest.raises(InputError, match=r'pip install "milabench_ng\[volumes\]"'):
        made(Cremi(), tmp_path, SCALE)


def test_files_without_content_are_no_real_set(tmp_path: Path) -> None:
    (tmp_path / "cremi").mkdir()
    for name in ("sample_A_20160501.hdf", "sample_A_padded_20160501.hdf"):
        (tmp_path / "cremi" / name).touch()
    with pytest.raises(InputError, match="cremi"):
        made(Cremi(), tmp_path)

"""The code on disk, compared with what it should be: mnb's own by room, wheels by their RECORD."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench_ng.model.sources import loaded_elsewhere, package_digests
from milabench_ng.records.proof import WheelCheck
from milabench_ng.worker.code_on_disk import check_wheels, first_of_name, installed, loaded_files, record_hash, required

TEXT = "VALUE = 1\n"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an installed and imported package ``toy_wheel`` with its RECORD."""
    package, info = tmp_path / "toy_wheel", tmp_path / "toy_wheel-1.0.dist-info"
    for folder in (package, info):
        folder.mkdir()
    for name in ("__init__.py", "lazy.py"):
        (package / name).write_text(TEXT)
    (package / "data.txt").write_text("no code")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy_wheel\nVersion: 1.0\n")
    rows = [f"toy_wheel/{name},{record_hash(str(package / name))},10" for name in ("__init__.py", "lazy.py")]
    rows += ["toy_wheel/data.txt,sha256=x,7", "toy_wheel/__pycache__/lazy.pyc,,", "toy_wheel-1.0.dist-info/RECORD,,"]
    (info / "RECORD").write_text("\n".join(rows) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    importlib.import_module("toy_wheel")
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] in ("toy_wheel", "toy_bare")]:
        del sys.modules[name]


def checked(*more: str) -> tuple[WheelCheck | None, tuple[str, ...]]:
    """What is found of ``toy_wheel`` where it and ``more`` files are loaded, and the files of no RECORD."""
    found, strays = check_wheels(loaded_files().union(more), ["toy-wheel"])
    return found["toy-wheel"], strays


def differing() -> tuple[str, ...]:
    found, _ = checked()
    assert found is not None
    return found.differing


@pytest.mark.usefixtures("wheel")
def test_a_wheel_as_it_was_installed_differs_in_nothing() -> None:
    found, strays = checked()
    assert found is not None
    assert (found.version, found.files, found.differing, strays) == ("1.0", 2, (), ())


def test_a_changed_file_is_named_whether_it_was_loaded_or_not(wheel: Path) -> None:
    (wheel / "lazy.py").write_text("VALUE = 2\n")
    assert differing() == (str(wheel / "lazy.py"),)


def test_of_a_large_file_a_look_compares_the_size(wheel: Path) -> None:
    (wheel / "lazy.py").write_text("VALUE = 2\n")
    found, _ = check_wheels(loaded_files(), ["toy-wheel"], largest=9)
    assert found["toy-wheel"].differing == ()  # type: ignore[union-attr]
    (wheel / "lazy.py").write_text("VALUE = 22\n")
    found, _ = check_wheels(loaded_files(), ["toy-wheel"], largest=9)
    assert found["toy-wheel"].differing == (str(wheel / "lazy.py"),)  # type: ignore[union-attr]
    assert check_wheels(loaded_files(), ["toy-wheel"], largest=20)[0] == found


def test_a_file_that_two_wheels_have_is_that_of_either(wheel: Path) -> None:
    other = wheel.parent / "toy_other-1.0.dist-info"
    shutil.copytree(wheel.parent / "toy_wheel-1.0.dist-info", other)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: toy_other\nVersion: 1.0\n")
    (wheel / "lazy.py").write_text("VALUE = 2\n")
    record = f"toy_wheel/lazy.py,{record_hash(str(wheel / 'lazy.py'))},10\n"
    (other / "RECORD").write_text(record)
    assert differing() == ()


def test_leftovers_of_a_broken_upgrade_accuse_nobody(wheel: Path) -> None:
    """Another RECORD of the same name, whose files are gone or newer, and a folder without metadata."""
    old, bare = (wheel.parent / f"toy_wheel-{version}.dist-info" for version in ("0.9", "0.8"))
    shutil.copytree(wheel.parent / "toy_wheel-1.0.dist-info", old)
    (old / "RECORD").write_text("toy_wheel/lazy.py,sha256=older,10\ntoy_wheel/gone.py,sha256=gone,10\n")
    bare.mkdir()
    assert differing() == ()


def test_a_file_that_an_image_left_away_differs_in_nothing(wheel: Path) -> None:
    before, _ = checked()
    (wheel / "lazy.py").unlink()
    after, _ = checked()
    assert before is not None
    assert after is not None
    assert (after.differing, after.files, after.sha256) == ((), 1, before.sha256)


def test_other_sums_than_sha_256_are_compared_too(wheel: Path) -> None:
    rows = [f"toy_wheel/{name},{record_hash(str(wheel / name), 'sha512')},10\n" for name in ("__init__.py", "lazy.py")]
    (wheel.parent / "toy_wheel-1.0.dist-info" / "RECORD").write_text("".join(rows))
    assert differing() == ()
    (wheel / "lazy.py").write_text("VALUE = 2\n")
    assert differing() == (str(wheel / "lazy.py"),)


@pytest.mark.usefixtures("wheel")
def test_data_that_a_wheel_has_is_no_stray(wheel: Path) -> None:
    assert checked(str(wheel / "data.txt"), str(wheel / "other.dat"))[1] == (str(wheel / "other.dat"),)


def test_so_is_a_module_that_the_wheel_has_not_got(wheel: Path) -> None:
    (wheel / "extra.py").write_text(TEXT)
    importlib.import_module("toy_wheel.extra")
    assert checked()[1] == (str(wheel / "extra.py"),)


def test_and_a_library_that_was_replaced_or_lies_deeper(wheel: Path) -> None:
    odd, deep = str(wheel / "_C.so (deleted)"), str(wheel / "new" / "lib.so.12")
    assert checked(odd, deep, "/usr/lib/libc.so.6")[1] == (odd, deep)


@pytest.mark.parametrize("installer", [None, "conda"])
def test_a_package_without_a_record_is_told_and_accused_of_nothing(wheel: Path, installer: str | None) -> None:
    info = wheel.parent / "toy_wheel-1.0.dist-info"
    (info / "INSTALLER").write_text(f"{installer}\n") if installer else (info / "RECORD").unlink()
    (wheel / "lazy.py").write_text("VALUE = 2\n")
    (wheel.parent / "toy_bare.py").write_text(TEXT)
    importlib.import_module("toy_bare")
    found, strays = check_wheels(loaded_files(), ["toy-wheel"])
    assert (found["toy_wheel"], found["toy_bare"], strays) == (None, None, ())


def test_files_and_folders_that_are_links_are_followed(wheel: Path) -> None:
    """As installers that link from a cache leave them."""
    (cache := wheel.parent / "cache").mkdir()
    (wheel / "lazy.py").rename(cache / "lazy.py")
    (wheel / "lazy.py").symlink_to(cache / "lazy.py")
    wheel.rename(cache / "toy_wheel")
    wheel.symlink_to(cache / "toy_wheel")
    assert differing() == ()
    (cache / "lazy.py").write_text("VALUE = 2\n")
    assert differing() == (str(cache / "lazy.py"),)


def test_what_conda_edited_is_compared_with_its_own_list(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes the folder of the environment into files after their RECORD was made."""
    (wheel.parent / "toy_wheel-1.0.dist-info" / "INSTALLER").write_text("conda\n")
    (wheel / "lazy.py").write_text("VALUE = 3\n")
    edited = hashlib.sha256(b"VALUE = 3\n").hexdigest()
    listed = [
        {"_path": "toy_wheel/lazy.py", "path_type": "hardlink", "sha256": "0" * 64, "sha256_in_prefix": edited},
        {"_path": "toy_wheel/data.txt", "sha256": ""},
    ]
    (meta := wheel.parent / "conda-meta").mkdir()
    (meta / "toy-wheel-1.0-py_0.json").write_text(json.dumps({"name": "toy-wheel", "paths_data": {"paths": listed}}))
    (meta / "cut.json").write_text("{")
    (meta / "odd.json").write_text('{"paths_data": {"paths": [{"_path": "x.py", "sha256": "no sum"}]}}')
    monkeypatch.setattr(sys, "prefix", str(wheel.parent))
    assert differing() == ()
    (wheel / "lazy.py").write_text("VALUE = 4\n")
    assert differing() == (str(wheel / "lazy.py"),)
    (wheel / "lazy.py").write_text("VALUE = 3\n")
    (wheel / "__init__.py").write_text("VALUE = 4\n")
    assert differing() == (str(wheel / "__init__.py"),), "which conda did not list: as its RECORD has it"


def test_what_mnb_requires_is_compared_loaded_or_not() -> None:
    asked = required("milabench-ng", first_of_name(installed()))
    assert {"numpy", "torch", "ale-py", "h5py"} <= asked, "and what its extras do"
    assert not asked & {"pytest", "ruff"}
    assert any(name.startswith("nvidia-") for name in asked), "by torch"
    found, _ = check_wheels(frozenset(), ["numpy", "nvidia-cublas"])
    assert [(name, one and one.differing) for name, one in found.items()] == [("numpy", ()), ("nvidia-cublas", ())]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder of a small package."""
    folder = tmp_path / "toy_rooms"
    for path in ("__init__.py", "bench/meter.py", "bench/__pycache__/meter.pyc", "share/profile.json", "worker/a.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(TEXT)
    return folder


def test_a_room_changes_with_any_of_its_files(package: Path, tmp_path: Path) -> None:
    before = package_digests(package)
    assert set(before) == {"__init__.py", "bench", "worker"}
    assert package_digests(Path(shutil.copytree(package, tmp_path / "elsewhere"))) == before
    (package / "bench" / "meter.py").write_text("VALUE = 1.5\n")
    (package / "worker" / "a.cpython-311-x86_64-linux-gnu.so").write_text("")
    after = package_digests(package)
    assert {room for room in before if before[room] != after[room]} == {"bench", "worker"}


def test_a_module_of_another_folder_is_named(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.py"
    other.write_text(TEXT)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    for name in ("toy_rooms", "toy_rooms.bench.meter"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    assert loaded_elsewhere(package) == ("toy_rooms.bench",)  # a folder without __init__.py is no file of it
    spec = importlib.util.spec_from_file_location("toy_rooms.worker.a", other)
    assert spec is not None
    monkeypatch.setitem(sys.modules, "toy_rooms.worker.a", importlib.util.module_from_spec(spec))
    assert loaded_elsewhere(package) == ("toy_rooms.bench", "toy_rooms.worker.a")

"""The code on disk, compared with what it should be: mnb's own by room, wheels by their RECORD."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench_ng.sources import loaded_elsewhere, package_digests
from milabench_ng.worker.code_on_disk import check_wheel, mapped_files, record_hash

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
    rows = [f"toy_wheel/{name},sha256={record_hash(str(package / name))},10" for name in ("__init__.py", "lazy.py")]
    rows += ["toy_wheel/data.txt,sha256=x,7", "toy_wheel/__pycache__/lazy.pyc,,", "toy_wheel-1.0.dist-info/RECORD,,"]
    (info / "RECORD").write_text("\n".join(rows) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    importlib.import_module("toy_wheel")
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_wheel"]:
        del sys.modules[name]


def differing(mapped: frozenset[str] = frozenset()) -> tuple[str, ...]:
    found = check_wheel("toy_wheel", mapped)
    assert found is not None
    return found.differing


@pytest.mark.usefixtures("wheel")
def test_a_wheel_as_it_was_installed_differs_in_nothing() -> None:
    found = check_wheel("toy_wheel", frozenset())
    assert found is not None
    assert (found.version, found.files, found.differing) == ("1.0", 2, ())


def test_a_changed_file_is_named_whether_it_was_loaded_or_not(wheel: Path) -> None:
    (wheel / "lazy.py").write_text("VALUE = 2\n")
    assert differing() == (str(wheel / "lazy.py"),)


def test_so_is_a_module_that_the_wheel_has_not_got(wheel: Path) -> None:
    (wheel / "extra.py").write_text(TEXT)
    importlib.import_module("toy_wheel.extra")
    assert differing() == (str(wheel / "extra.py"),)


def test_and_a_library_that_is_mapped_from_its_folder(wheel: Path) -> None:
    odd = str(wheel / "_C.so (deleted)")
    assert differing(frozenset({odd, "/usr/lib/libc.so.6"})) == (odd,)


def test_a_package_without_a_record_cannot_be_compared(wheel: Path) -> None:
    (wheel.parent / "toy_wheel-1.0.dist-info" / "RECORD").unlink()
    assert check_wheel("toy_wheel", frozenset()) is None
    assert check_wheel("no-such-wheel", frozenset()) is None


def test_numpy_here_is_as_it_was_installed_with_its_libraries() -> None:
    importlib.import_module("numpy")
    found = check_wheel("numpy", mapped_files())
    assert found is not None
    assert found.differing == ()
    assert any("numpy" in path and ".so" in path for path in mapped_files())


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

"""Locating and generating: all or nothing, one generator at a time, the real set untouched."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench_ng.datasets import manifest, prepare, registry
from milabench_ng.datasets.prepare import FoundDataset
from milabench_ng.model.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))
from making import quiet
from toys import ITEMS, Gigantic, Newer, Toy

from tests.living import alive

PROGRAM = Path(__file__).with_name("toys.py")


def differing(located: FoundDataset) -> tuple[str, ...]:
    return prepare.read_again(Toy(), located, 1.0, quiet, 2).differing


def made(root: Path, processes: int = 1, scale: float = 1.0) -> FoundDataset:
    return prepare.prepare(Toy(), root, scale, quiet, processes)


Start = Callable[[str, Path, int], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start toys.py; what a failed test leaves running is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(kind: str, root: Path, processes: int) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAM), kind, str(root), str(processes)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for generator in started:
        generator.kill()
        generator.communicate()


def test_generated_once_and_the_same_for_any_number_of_processes(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    one = prepare.prepare(Toy(), tmp_path / "one", 1.0, lambda done, total: calls.append((done, total)), 1)
    three = made(tmp_path / "three", 3)
    assert one.kind == three.kind == "twin"
    assert one.manifest is not None
    assert three.manifest is not None
    assert (one.manifest.files, one.manifest.bytes) == (ITEMS, ITEMS * 1000)
    assert one.manifest.checksum == three.manifest.checksum
    assert manifest.read_listing(one.path) == manifest.read_listing(three.path)
    assert calls[0] == (0, ITEMS)
    assert calls[-1] == (ITEMS, ITEMS)
    assert made(tmp_path / "one") == one
    assert differing(one) == ()


def test_scales_lie_side_by_side(tmp_path: Path) -> None:
    assert made(tmp_path).path == tmp_path / "Toy"
    assert made(tmp_path, scale=0.02).path == tmp_path / "scale-0.02" / "Toy"
    with pytest.raises(InputError, match=r"data scale 1\.5"):
        prepare.locate(Toy(), tmp_path, 1.5)


@pytest.mark.parametrize("processes", [1, 3])
def test_killed_generator_leaves_nothing_that_loads_and_no_process(
    start: Start, tmp_path: Path, processes: int
) -> None:
    generator = start("endless", tmp_path, processes)
    assert generator.stdout is not None
    pids = {int(generator.stdout.readline()) for _ in range(processes)}  # each process is inside an item
    assert all(map(alive, pids))
    with open(tmp_path / ".mnb-toy.lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # nobody else generates meanwhile
    generator.kill()
    generator.wait()
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(alive, pids))
    assert prepare.locate(Toy(), tmp_path, 1.0).kind == "absent"
    assert {path.name for path in tmp_path.iterdir()} == {f".mnb-toy-{generator.pid}", ".mnb-toy.lock"}

    assert made(tmp_path).kind == "twin"
    assert [path.name for path in tmp_path.iterdir()] == ["Toy"]


def test_interrupted_generator_cleans_up_after_itself(start: Start, tmp_path: Path) -> None:
    generator = start("endless", tmp_path, 1)
    assert generator.stdout is not None
    generator.stdout.readline()
    generator.send_signal(signal.SIGINT)
    assert generator.wait(20) != 0
    assert list(tmp_path.iterdir()) == []


def test_two_generators_at_once_make_one_set(start: Start, tmp_path: Path) -> None:
    generators = [start("toy", tmp_path, 2) for _ in range(3)]
    outputs = sorted(generator.communicate(timeout=60)[0].split()[-1] for generator in generators)
    assert outputs == ["found", "found", "generated"]
    assert [path.name for path in tmp_path.iterdir()] == ["Toy"]
    assert differing(prepare.locate(Toy(), tmp_path, 1.0)) == ()


def test_refused_when_the_disk_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs 1073741824\.0 GiB .* GiB are free"):
        prepare.prepare(Gigantic(), tmp_path, 1.0, quiet, 1)
    assert list(tmp_path.iterdir()) == []


def test_refused_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot generate toy"):
        made(tmp_path / "file")


def test_real_set_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "Toy").mkdir()
    (tmp_path / "Toy" / "real.bin").write_bytes(b"real")
    located = made(tmp_path)
    assert located == FoundDataset(tmp_path / "Toy", "real")
    prepare.check(located)
    assert [path.name for path in (tmp_path / "Toy").iterdir()] == ["real.bin"]


def test_a_folder_that_is_neither_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "Toy").mkdir()
    (tmp_path / "Toy" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="neither a synthetic dataset"):
        made(tmp_path)
    assert (tmp_path / "Toy" / "thesis.tex").read_text() == "precious"


def test_twin_of_another_generator_version_is_replaced(tmp_path: Path) -> None:
    made(tmp_path)
    located = prepare.prepare(Newer(), tmp_path, 1.0, quiet, 1)
    assert located.manifest is not None
    assert located.manifest.generator == 2
    assert [path.name for path in tmp_path.iterdir()] == ["Toy"]


def test_checksum_detects_one_changed_byte_and_check_a_missing_file(tmp_path: Path) -> None:
    located = made(tmp_path)
    victim = located.path / "7.bin"
    data = bytearray(victim.read_bytes())
    data[500] ^= 1
    victim.write_bytes(data)
    prepare.check(located)
    assert differing(located) == ("7.bin",)
    os.remove(victim)
    with pytest.raises(InputError, match=r"39 files of 39000 bytes, its manifest says 40 files of 40000 bytes"):
        prepare.check(located)


def test_a_file_that_was_put_back_is_seen_by_when_it_was_changed(tmp_path: Path) -> None:
    located = made(tmp_path)
    first = prepare.read_again(Toy(), located, 1.0, quiet, 2)
    victim = located.path / "7.bin"
    content, times = victim.read_bytes(), victim.stat()
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
    victim.write_bytes(content)
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = prepare.read_again(Toy(), located, 1.0, quiet, 2)
    assert again.checksum == first.checksum == located.manifest.checksum  # type: ignore[union-attr]
    assert again.changed_s > first.changed_s
    assert (first.files, first.bytes) == (ITEMS, ITEMS * 1000)


def test_a_real_set_has_a_checksum_too(tmp_path: Path) -> None:
    (tmp_path / "Toy").mkdir()
    (tmp_path / "Toy" / "real.bin").write_bytes(b"real")
    read = prepare.read_again(Toy(), prepare.locate(Toy(), tmp_path, 1.0), 1.0, quiet, 2)
    listed = [manifest.TwinFile("real.bin", 4, hashlib.sha256(b"real").hexdigest())]
    assert (read.checksum, read.generator, read.differing) == (manifest.checksum(listed), None, ())


def test_unreadable_manifest_is_explained(tmp_path: Path) -> None:
    located = made(tmp_path)
    (located.path / manifest.MANIFEST).write_text("{")
    with pytest.raises(InputError, match="is not a manifest"):
        prepare.locate(Toy(), tmp_path, 1.0)


def test_built_in_name_cannot_be_shadowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "others-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (package / "entry_points.txt").write_text("[milabench_ng.datasets]\ntoy = toys:Toy\n")
    assert "toy" in registry.names()
    assert isinstance(registry.find("toy"), Toy)
    with pytest.raises(InputError, match=r"unknown dataset 'cocoa' \(did you mean 'coco'\?\)"):
        registry.find("cocoa")

    (package / "entry_points.txt").write_text("[milabench_ng.datasets]\nmnist = toys:Toy\n")
    with pytest.raises(InputError, match=r"milabench_ng\.datasets\.images\.mnist:Mnist and toys:Toy of others 1\.0"):
        registry.find("mnist")
    assert registry.find("wmt16").name == "wmt16"


def test_generation_machinery_imports_no_torch() -> None:
    modules = (
        "base",
        "cache",
        "images.coco_index",
        "images.coco_scenes",
        "conversion",
        "images.digits",
        "manifest",
        "parallel",
        "images.photographs",
        "prepare",
        "registry",
        "shuffled",
        "words",
    )
    code = (
        "import sys, "
        + ", ".join(f"milabench_ng.datasets.{name}" for name in modules)
        + "; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_there_has_not_to_be_generated(tmp_path: Path) -> None:
    missing = prepare.to_generate(Toy(), tmp_path, 1.0)
    assert missing is not None
    assert (missing.files, missing.bytes) == (ITEMS, ITEMS * (1000 + 4096))
    made(tmp_path)
    assert prepare.to_generate(Toy(), tmp_path, 1.0) is None
    assert prepare.to_generate(Newer(), tmp_path, 1.0) is not None  # another version of the generator


def test_the_free_space_is_that_of_where_the_folder_would_be_made(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    assert prepare.free_bytes(tmp_path / "not" / "there") == pytest.approx(free, rel=0.05)

"""Which modules a workload is, and their hash."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

import pytest

from milabench_ng.bench.definition import source_modules
from milabench_ng.model.sources import digest
from milabench_ng.worker.discovery import builtin_workloads

FILES = {
    "__init__": "",
    "job": "import torch\nfrom sand_pack import grains\nfrom .near import thing\n\n\ndef job(bench):\n    pass\n",
    "near": "thing = 1\n\n\ndef later():\n    import sand_pack.deep\n",
    "grains": "import os\nimport sand_pack.near\n",
    "deep": "",
    "other": "",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of several modules on the import path."""
    folder = tmp_path / "sand_pack"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("sand_pack", "sand_pack.job", "sand_pack.grains", "sand_pack.near"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return folder


def test_helpers_belong_to_it_and_what_it_does_not_import_does_not(package: Path) -> None:
    job = importlib.import_module("sand_pack.job").job
    modules = source_modules(job)
    assert list(modules) == ["sand_pack.job", "sand_pack.deep", "sand_pack.grains", "sand_pack.near"]
    before = digest(modules)
    assert (
        before
        == hashlib.sha256("".join(FILES[name] for name in ("job", "deep", "grains", "near")).encode()).hexdigest()
    )
    (package / "other.py").write_text("changed = True\n")
    assert digest(source_modules(job)) == before
    (package / "deep.py").write_text("changed = True\n")
    assert digest(source_modules(job)) != before


def test_of_built_in_workloads() -> None:
    found = builtin_workloads()
    assert list(source_modules(found["vae"].function)) == ["milabench_ng.workloads.standard.vae"]
    for name in ("atari", "minigrid"):
        assert list(source_modules(found[name].function)) == [
            f"milabench_ng.workloads.standard.{name}",
            "milabench_ng.workloads.standard.ppo",
        ]
    described = found["atari"].describe("atari", "milabench_ng 1")
    contents = source_modules(found["atari"].function).values()
    assert described.source_sha256 == hashlib.sha256(b"".join(contents)).hexdigest()

"""Workloads of others: by entry point or by path; never under a built-in name."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import milabench_ng.workloads
from milabench_ng import __version__
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import parse_profile
from milabench_ng.run.planning.request import RunRequest, resolve_request
from milabench_ng.worker import trial
from milabench_ng.worker.discovery import BUILT_IN_SETS, builtin_workloads, describe, find_workload
from tests.living import alive

WORKLOADS = Path(milabench_ng.workloads.__file__).parent

MODULE = '''
from milabench_ng.bench import Bench, workload


@workload(unit="grains")
def sand(bench: Bench, *, size: int = 3) -> None:
    """Moves sand."""


def plain(bench):
    """No workload."""
'''
READS = '''
from typing import Literal

from milabench_ng.bench import Bench, DataBy, workload


@workload(unit="grains", data=DataBy(option="source", sets={"ground": "holes"}))
def sand(bench: Bench, *, source: Literal["ground", "sky"] = "sky") -> None:
    """Reads holes."""
'''
Install = Callable[..., None]
LEAVES = """
import pathlib, subprocess
left = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path(__file__).with_suffix(".pid").write_text(str(left.pid))
"""
FAULTS = {
    "raises": ("raise ValueError('odd')", "cannot be imported: ValueError: odd"),
    "exits": ("raise SystemExit(3)", "ends the process that imports it (status 3)"),
    "dies": ("import os; os.kill(os.getpid(), 9)", "ends the process that imports it (SIGKILL)"),
    "eats": ("import numpy; numpy.zeros(1 << 30)", "takes more than 4.0 GiB of memory when it is imported"),
    "hangs": ("import time; time.sleep(600)", "did not finish importing within 4 s"),
    "odd bytes": (r"raise RuntimeError('/data/\udcff')", r"cannot be imported: RuntimeError: /data/\xff"),
    "odd words": (
        "class Odd(Exception):\n    __str__ = lambda self: {}['words']\nraise Odd",
        "cannot be imported: Odd: the error message could not be read: KeyError",
    ),
    "kills its watcher": (
        "import os, time; os.kill(os.getppid(), 9); time.sleep(600)",
        "cannot be tried: the process that watches its import ended (SIGKILL)",
    ),
    "leaves": (LEAVES, "leaves a process behind when it is imported (sleep)"),
}
"""What the import of a broken package does, and what is said of it."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put distributions with entry points and their module ``mnb_test_sand`` on the import path."""
    (tmp_path / "mnb_test_sand.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(distribution: str = "sandbox", group: str = "workloads", **entries: str) -> None:
        folder = tmp_path / f"{distribution}-2.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 2.1\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (folder / "entry_points.txt").write_text(f"[milabench_ng.{group}]\n{lines}")
        importlib.invalidate_caches()

    yield put
    sys.modules.pop("mnb_test_sand", None)


def test_the_built_in_ones() -> None:
    written = {path for path in WORKLOADS.rglob("*.py") if "\n@workload(" in path.read_text()}
    assert {Path(inspect.getfile(each.function)) for each in builtin_workloads().values()} == written
    definition, package = find_workload("vae")
    assert (definition.name, package) == ("vae", f"milabench_ng {__version__}")
    assert set(describe(()).data_sets) == BUILT_IN_SETS


def test_an_installed_one(install: Install) -> None:
    install(dunes="mnb_test_sand:sand")
    definition, package = find_workload("dunes")
    assert (definition.unit, package) == ("grains", "sandbox 2.1")
    assert "dunes" not in describe(["vae"]).workloads
    described = describe(["dunes"]).workloads["dunes"]
    assert (described.name, described.origin, described.package) == ("dunes", "mnb_test_sand:sand", "sandbox 2.1")
    assert [option.name for option in described.options][:2] == ["size", "max_count"]


@pytest.mark.usefixtures("install")
def test_one_that_is_named_by_its_path() -> None:
    definition, package = find_workload("mnb_test_sand:sand")
    assert (definition.unit, package) == ("grains", "mnb_test_sand")
    described = describe(["mnb_test_sand:sand"]).workloads["mnb_test_sand:sand"]
    assert (described.name, described.summary) == ("mnb_test_sand:sand", "Moves sand.")


def request(source: str) -> RunRequest:
    """A run of the workload that reads holes, or looks at the sky."""
    test = {"workload": "dunes", "arguments": {"source": source}}
    text = json.dumps({"dig": test})
    return RunRequest(profile=parse_profile("s", text, "here"), dataroot=Path("/"), outdir=Path("/"))


def refused(name: str) -> str:
    """Why a run that uses this workload is refused, and nothing else is."""
    for found in (describe([name]), describe(None)):
        assert list(found.broken) == [name]
        assert {"toy_reg", "reso"} <= found.workloads.keys()
    assert describe(["toy_reg"]).broken == {}
    with pytest.raises(InputError) as caught:
        found.workload(name, "here")
    return str(caught.value)


def test_a_built_in_name_cannot_be_shadowed(install: Install) -> None:
    install(vae="mnb_test_sand:sand")
    assert "sandbox 2.1 declares a workload 'vae', which is built in" in refused("vae")
    assert find_workload("vae")[0] is builtin_workloads()["vae"]


def test_two_packages_cannot_offer_the_same_name(install: Install) -> None:
    install(dunes="mnb_test_sand:sand")
    install("other", dunes="mnb_test_sand:plain")
    with pytest.raises(InputError, match="two workloads are called 'dunes'") as caught:
        find_workload("dunes")
    for said in (str(caught.value), refused("dunes")):
        assert "mnb_test_sand:sand of sandbox 2.1" in said
        assert "mnb_test_sand:plain of other 2.1" in said


@pytest.mark.parametrize("value", ["mnb_test_sand:plain", "mnb_test_sand:workload", "mnb_test_sand"])
def test_an_entry_point_that_is_no_workload(install: Install, value: str) -> None:
    install(dunes=value)
    assert f"{value} of sandbox 2.1 is no workload: decorate the function" in refused("dunes")


@pytest.mark.parametrize("value", ["mnb_test_sand:absent", "mnb_test_absent:sand"])
def test_an_entry_point_that_cannot_be_imported(install: Install, value: str) -> None:
    install(dunes=value)
    assert f"'dunes' ({value} of sandbox 2.1) cannot be imported: " in refused("dunes")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_package_is_named_and_blocks_what_uses_it(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    code, said = FAULTS[fault]
    (tmp_path / "mnb_test_bad.py").write_text(code)
    install("bad", dunes="mnb_test_bad:sand")
    install("sound", sand="mnb_test_sand:sand")
    monkeypatch.setattr(trial, "LIMIT_S", 4.0)
    assert refused("dunes") == f"here: workload 'dunes' (mnb_test_bad:sand of bad 2.1) {said}"
    assert "sand" in describe(["sand"]).workloads
    if fault == "leaves":
        assert not alive(int((tmp_path / "mnb_test_bad.pid").read_text()))


@pytest.mark.parametrize("fault", ["exits", "leaves"])
def test_a_broken_data_set_is_named_and_blocks_what_reads_it(install: Install, tmp_path: Path, fault: str) -> None:
    code, said = FAULTS[fault]
    (tmp_path / "mnb_test_bad.py").write_text(code)
    (tmp_path / "mnb_test_sand.py").write_text(READS)
    install("bad", "datasets", holes="mnb_test_bad:Holes")
    install(dunes="mnb_test_sand:sand")
    found = describe(["dunes", "reso"])
    assert found.broken == {}
    assert found.broken_sets == {"holes": f"dataset 'holes' (mnb_test_bad:Holes of bad 2.1) {said}"}
    assert describe(["reso"]).broken_sets == {}
    resolve_request(request("sky"), found)
    with pytest.raises(InputError, match=r"here: test 'dig': dataset 'holes' \(mnb_test_bad:Holes of bad 2\.1\) "):
        resolve_request(request("ground"), found)


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vea", "unknown workload 'vea' (did you mean 'vae'?)"),
        (":sand", "unknown workload ':sand'"),
        ("mnb_test_sand:", "unknown workload"),
        ("..mnb_test_sand:sand", "unknown workload"),
        ("os; import sys:x", "unknown workload"),
        ("mnb_test_absent:sand", "cannot be imported: No module named 'mnb_test_absent'"),
        ("mnb_test_sand:absent", "cannot be imported: module 'mnb_test_sand' has no attribute 'absent'"),
        ("mnb_test_sand:plain", "mnb_test_sand:plain is no workload: decorate the function"),
        ("os:getcwd", "os:getcwd is no workload"),
    ],
)
def test_names_that_lead_to_no_workload(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        find_workload(name)
    assert message in str(caught.value)


def test_what_a_workload_needs_is_known_without_importing_it(install: Install, tmp_path: Path) -> None:
    text = MODULE.replace('unit="grains"', 'unit="grains", requires=("mnb_absent", "json"), extra="dig"')
    (tmp_path / "mnb_test_sand.py").write_text(text)
    install(dunes="mnb_test_sand:sand")
    described = describe(["dunes"]).workloads["dunes"]
    assert (described.requires, described.missing) == (("mnb_absent", "json"), ("mnb_absent",))
    assert described.remedy == 'pip install "sandbox[dig]"'
    atari = describe(()).workloads["atari"]
    assert (atari.requires, atari.extra) == (("gymnasium", "ale_py"), "rl")
    assert atari.remedy == 'pip install "milabench_ng[rl]"'

"""`mnb check`: what it runs here, what it keeps, and what it says to cron and to the prologs of Slurm."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from test_health import BUSY, CPUS, marked, node

from milabench_ng.analysis.summary.folder import encode_summary, load_baseline
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli import call, check
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.model.errors import InputError
from milabench_ng.model.units import GIB
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.planning.request import RunRequest
from tests.one_server import OneServer


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path / "state" / "milabench_ng" / "check"


def checked(monkeypatch: pytest.MonkeyPatch, found: Summary, *options: str) -> int:
    """The command, on a node that a run finds so."""

    def run(request: RunRequest, **_: bool) -> SimpleNamespace:
        request.outdir.mkdir()
        return SimpleNamespace(interrupted=None)

    monkeypatch.setattr(check, "_run", run)
    monkeypatch.setattr(check, "load_result", lambda _: found)
    return call(["check", *options])


@pytest.mark.parametrize(("options", "tells"), [((), True), (("--store",), True), (("--json",), False)])
@pytest.mark.usefixtures("state")
def test_progress_and_load_are_told_at_once_unless_a_program_reads(
    options: tuple[str, ...], tells: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def begin(_: RunRequest, bus: Bus, *__: object) -> None:
        bus.note("other programs keep 1.2 of 2 CPUs busy")
        raise InputError("here it ends")

    monkeypatch.setattr(check, "jobs", begin)
    assert call(["check", *options]) == 2
    said = capsys.readouterr().err
    assert said.endswith("mnb: here it ends\n")
    assert ("1.2 of 2 CPUs" in said) is tells


def test_it_is_for_real_on_this_node(
    tmp_path: Path,
    state: Path,
    data_root: Path,
    one_server: OneServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One repeat of half a second, which decides nothing; others may be at work here, too."""
    jobs, tenants = check.jobs, min(2, len(os.sched_getaffinity(0)))
    small = {"tenants": tenants, "ram_total_bytes": (2 + 5 * tenants) * GIB}  # so are the networks then
    monkeypatch.setattr(check, "REPEATS", 1)
    monkeypatch.setattr(check, "WINDOW_S", 0.5)
    monkeypatch.setattr(check, "jobs", lambda request, *others: jobs(replace(request, **small), *others))
    with one_server.lent():
        code = call(["check", "--json", "-d", str(data_root), "-o", str(tmp_path / "results")])
    (line,) = capfd.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["schema"], told["exit_code"]) == (1, code)
    assert code in (1, 3)
    assert told["reasons"]
    assert told["results"] == str(tmp_path / "results")
    assert len(list((tmp_path / "results").glob("check.*.json"))) == 3 * int(told["hardware"].split()[0])
    assert not state.exists()


def test_the_same_work_at_every_check_in_three_minutes(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("check").write_text("a file of a user")
    made = check._request(NodeOptions(dataroot=data_root))
    assert (made.profile.suite, made.repeat, made.rule.length_s, made.rule.settle_s) == ("check", 5, 3.0, 2 / 3)
    assert made.stopping is not None
    assert made.stopping.budget_s is not None
    assert 5 * 26.4 < made.stopping.budget_s < 180 - 12, "a repeat took 26.4 s on two H200, all around the repeats 12 s"


def test_it_is_held_against_what_was_stored(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    first = node(rng)
    first = replace(first, provenance=replace(first.provenance, node={"processors": "2 x Xeon, 64 cores in all"}))
    assert checked(monkeypatch, first, "--json") == 3
    assert "there is no baseline of this kind of node" in capsys.readouterr().out
    assert checked(monkeypatch, first, "--store") == 0
    (file,) = state.iterdir()
    assert file.name == "nvidia-h200-2-x-xeon-64-cores-in-all.json"
    assert load_baseline(str(file)).tests == first.tests
    capsys.readouterr()
    assert checked(monkeypatch, first) == 0
    told = capsys.readouterr().out
    assert "healthy" in told
    assert f"100.0% of {file}" in "".join(told.split("\n")).replace("  ", "")
    slow = replace(node(rng, slow={2: 0.8}), provenance=first.provenance)
    assert checked(monkeypatch, slow, "--json") == 1
    line = json.loads(capsys.readouterr().out)
    assert (line["verdict"], line["devices"], line["baseline"]) == ("slow", ["2"], str(file))
    assert line["results"], "that of a slow node is kept"
    lost = replace(node(rng, devices=7), provenance=first.provenance)
    assert checked(monkeypatch, lost, "--json") == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "faulty"


def test_a_disturbed_check_is_not_stored(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = marked(node(np.random.default_rng(3), CPUS, 2), BUSY)
    assert checked(monkeypatch, found, "--store", "--json") == 3
    line = json.loads(capsys.readouterr().out)
    assert (line["stored"], line["results"]) == (None, None)
    page = Path(__file__).parents[2] / "docs" / "reference" / "check.md"
    told = [
        key for row in page.read_text().splitlines() if row.startswith("| `") for key in row.split("|")[1].split(",")
    ]
    assert sorted(key.strip(" `") for key in told) == sorted(line)
    assert line["reasons"] == [BUSY.sentence]
    assert not list(state.iterdir())
    checked(monkeypatch, found, "--store")
    assert "stored   nothing: only a healthy node is a baseline" in capsys.readouterr().out
    assert not list(tmp_path.glob("mnb-*")), "the folder of a check that decides nothing is removed"


@pytest.mark.usefixtures("state")
def test_a_baseline_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(3)
    golden = tmp_path / "golden.json"
    golden.write_text(encode_summary(node(rng)))
    assert checked(monkeypatch, node(rng), "--baseline", str(golden)) == 0
    assert "healthy from 95% on" in capsys.readouterr().out
    checked(monkeypatch, node(rng), "--baseline", str(golden), "--least", "97%", "--json")
    assert json.loads(capsys.readouterr().out)["least"] == 0.97
    assert checked(monkeypatch, node(rng), "--baseline", str(tmp_path / "none")) == 2
    assert checked(monkeypatch, node(rng), "--baseline", str(golden), "--store") == 2
    assert "Leave one of them out" in capsys.readouterr().err


@pytest.mark.usefixtures("state")
def test_an_interrupted_check_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended: Any = SimpleNamespace(interrupted="SIGTERM")
    monkeypatch.setattr(check, "_run", lambda *_, **__: ended)
    monkeypatch.setattr(check, "exit_code", lambda _: 143)
    assert call(["check"]) == 143
    assert not list(tmp_path.glob("mnb-*"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--least", "2"), "--least: expected a share above 0% and up to 100%, got '2'"),
        (("--store",), "Name another with XDG_STATE_HOME"),
        (("--baseline", "h200"), "--baseline h200: it is of standard. Make one of check: mnb check --store"),
    ],
)
def test_what_cannot_be_is_refused_before_minutes_of_work(
    options: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    monkeypatch.setattr(check, "_run", lambda *_, **__: pytest.fail("it ran"))
    assert call(["check", *options]) == 2
    assert why in capsys.readouterr().err

"""Baselines: built of folders that are fit for it, carried over by peak rates, checked for what cannot be."""

from __future__ import annotations

import json
import math
from pathlib import Path

import make_records
import msgspec
import pytest
import tampering
from make_records import PER_GPU, PROGRESSION
from slice_attacks import multiplied
from test_money import node, row

from milabench_ng.analysis.baselines.baseline import measured_again
from milabench_ng.analysis.baselines.plausible import doubts
from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load, load_baseline
from milabench_ng.analysis.summary.summary import Stat, Summary
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError

TESTS = {"toy_reg": PER_GPU, "toy_lstm": PER_GPU, "vae": PER_GPU, "loader": PER_GPU, "convnet": PER_GPU}


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    made = make_records.plan("quick", TESTS | {"scaling": PROGRESSION}, 2, 3)
    make_records.write_run(tmp_path / "run", made, slices=24)
    return tmp_path / "run"


def test_a_folder_becomes_a_baseline_and_is_compared_with(quick: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    assert call(["baseline", "build", str(quick), "-o", str(file), "--note", "rack 7"]) == 0
    made = load(file)
    assert made.provenance.kind == "measured"
    assert "2 tenants, isolation full" in made.provenance.notes
    assert "repeats: 3; sessions: 1" in made.provenance.notes
    assert "rack 7" in made.provenance.notes
    assert all(not at.launches and at.log_perf for at in made.tests.values())
    assert call(["report", str(quick), "--compare", str(file), "-o", str(tmp_path / "out.txt")]) == 0


def test_a_bound_that_measurements_show_replaces_the_declared_one_and_is_noted(
    quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.json"
    was = load(quick).tests["quick.vae"].work.bound
    assert call(["baseline", "build", str(quick), "-o", str(file), "--bound", "quick.vae=io"]) == 0
    made = load(file)
    assert made.tests["quick.vae"].work.bound == "io"
    assert f"quick.vae: bound by io, run as {was}" in made.provenance.notes
    assert call(["baseline", "build", str(quick), "--bound", "quick.vae=disk"]) == 2
    assert "a class of cpu, io, launch, links, gpu-compute, gpu-memory" in capsys.readouterr().err
    assert call(["baseline", "build", str(quick), "--bound", "quick.none=io"]) == 2
    assert "no test 'quick.none'" in capsys.readouterr().err


def test_tests_that_were_run_again_take_the_place_of_their_rows(
    quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again, file = tmp_path / "again", tmp_path / "mine.json"
    make_records.write_run(again, make_records.plan("quick", {"vae": PER_GPU}, 2, 4), lambda *_: 50.0, slices=24)
    assert call(["baseline", "build", str(quick), "--again", str(again), "-o", str(file)]) == 0
    made = load(file)
    assert (made.tests["quick.vae"].train, made.tests["quick.vae"].n) == (Stat(8, 50.0, 50.0, 50.0, 0.0), 8)
    assert made.tests["quick.convnet"] == msgspec.structs.replace(load(quick).tests["quick.convnet"], launches={})
    assert made.tests["quick.vae"].origin.source == str(again)
    assert {f"quick.vae: run without the other tests, {again}", "repeats: 3 to 4; sessions: 2"} <= set(
        made.provenance.notes
    )
    assert call(["report", str(quick), "--compare", str(file), "-o", str(tmp_path / "out.txt")]) == 0

    wider = tmp_path / "wider"
    make_records.write_run(wider, make_records.plan("quick", {"vae": PER_GPU}, 3, 3))
    assert call(["baseline", "build", str(quick), "--again", str(wider)]) == 2
    assert "the hardware was '3 x Test GPU' there and is '2 x Test GPU' in the first folder" in capsys.readouterr().err
    smaller = tmp_path / "smaller"
    make_records.write_run(smaller, make_records.plan("quick", {"vae": PER_GPU}, 2, 3))
    for path in smaller.glob("quick.vae.*"):
        tampering.rewrite(path, lambda made: made["mnb"]["data"].update(scale=0.5))
    make_records.write_ledger(smaller, make_records.plan("quick", {"vae": PER_GPU}, 2, 3))
    assert call(["baseline", "build", str(quick), "--again", str(smaller)]) == 2
    assert "quick.vae ran with other options, data, precision or limits than in the first" in capsys.readouterr().err
    other = tmp_path / "other"
    make_records.write_run(other, make_records.plan("quick", {"ssd": PER_GPU}, 2, 3))
    assert call(["baseline", "build", str(quick), "--again", str(other)]) == 2
    assert "the first folder has no test 'quick.ssd'" in capsys.readouterr().err


def test_tests_that_were_left_out_are_added_from_another_run_of_the_profile(tmp_path: Path) -> None:
    def part(name: str, profile: str) -> Summary:
        make_records.write_run(tmp_path / name, make_records.plan("quick", {name: PER_GPU}, 2, 3))
        left_out = tuple(f"quick.{each}" for each in TESTS if each != name)
        return msgspec.structs.replace(load(tmp_path / name), omitted=left_out, profile_sha256=(profile,))

    made = measured_again(part("vae", "this"), part("convnet", "this"))
    assert list(made.tests) == ["quick.vae", "quick.convnet"]
    assert made.omitted == ("quick.toy_reg", "quick.toy_lstm", "quick.loader")
    with pytest.raises(
        InputError, match=r"quick\.loader was left out of the first folder, whose profile is another one"
    ):
        measured_again(made, part("loader", "another"))


def test_a_folder_that_breaks_a_rule_is_unfit(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tampering.record(lambda content: multiplied(content, 10))(quick)
    assert call(["baseline", "build", str(quick)]) == 2
    assert " violates R37: quick.vae J" in capsys.readouterr().err


def test_a_folder_that_raises_a_doubt_is_built_from_and_the_doubt_is_kept(quick: Path, tmp_path: Path) -> None:
    tampering.record(lambda content: multiplied(content, 2))(quick)
    assert call(["baseline", "build", str(quick), "-o", str(tmp_path / "made.json")]) == 0
    made = decode_summary((tmp_path / "made.json").read_bytes(), "made.json")
    assert [note for note in made.provenance.notes if note.startswith("doubt unlike-steps: quick.vae J")]


def test_a_suite_without_weights_needs_all_its_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["baseline", "build", str(tmp_path / "new")]
    make_records.write_run(
        tmp_path / "new", make_records.plan("new", dict.fromkeys(("a", "b"), PER_GPU), 2, 3), slices=24
    )
    assert call(given) == 0
    next((tmp_path / "new").glob("new.a.*")).unlink()
    capsys.readouterr()
    assert call(given) == 2
    assert "the score is invalid: new.a" in capsys.readouterr().err


def test_an_unfit_folder_is_refused_or_marked(quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(quick.glob("quick.vae.*")).unlink()
    assert call(["baseline", "build", str(quick)]) == 2
    assert "the score is invalid: quick.vae" in capsys.readouterr().err
    file = tmp_path / "poor.json"
    assert call(["baseline", "build", str(quick), "--accept-shortfalls", "-o", str(file)]) == 0
    assert any(note.startswith("not as a baseline should be: the score is") for note in load(file).provenance.notes)


def test_doubts() -> None:
    base = node(100.0, 100.0)

    def found(**tests: object) -> list[tuple[str, str]]:
        made = msgspec.structs.replace(base, tests=tests)
        return [(each.test, each.what) for each in doubts(made, {"other": base})]

    assert found(**{"standard.vae": row(150.0)}) == []
    slip = found(**{"standard.vae": row(100_000.0)})
    assert slip == [("standard.vae", "1000 times the rate of other: is the unit 'images' right?")]
    assert "standard deviation is 150%" in found(x=_with(Stat(5, 1.0, 9.0, 2.0, 3.0)))[0][1]
    assert "not between" in found(x=_with(Stat(5, 5.0, 9.0, 2.0, 0.1)))[0][1]
    assert "negative or not finite" in found(x=_with(Stat(5, 1.0, math.inf, 2.0, 0.1)))[0][1]
    steps = found(**{"s.scaling.1": row(100.0), "s.scaling.2": row(40.0)})
    assert steps == [("s.scaling.2", "2 devices do 80 images/s together, 1 do 100")]


def _with(train: Stat) -> object:
    return msgspec.structs.replace(row(1.0), train=train)


@pytest.mark.parametrize(("name", "step"), [("v100", "scaling.5"), ("rtx8000", "scaling.2")])
def test_check_finds_what_is_odd_about_the_published_scaling(
    name: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["baseline", "check", name]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [f"standard.{step}"]


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["baseline", "show", "v100"]) == 0
    out = capsys.readouterr().out
    assert "published" in out
    assert "classic items" in out
    assert isinstance(load_baseline("v100"), Summary)
    assert json.loads(encode_summary(load_baseline("v100")))["units"] == "classic"

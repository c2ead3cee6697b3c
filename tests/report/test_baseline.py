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

from milabench_ng.cli import call
from milabench_ng.errors import InputError
from milabench_ng.report.baselines.baseline import measured_again
from milabench_ng.report.baselines.carrying import Held, TransferRule
from milabench_ng.report.baselines.estimated_baseline import RuleBasis, estimate
from milabench_ng.report.baselines.known_rates import device_of, known_pairs
from milabench_ng.report.baselines.peaks import Arithmetic, known_peak, peak
from milabench_ng.report.baselines.plausible import doubts
from milabench_ng.report.summary.folder import decode_summary, encode_summary, load, load_baseline
from milabench_ng.report.summary.summary import Stat, Summary

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
    was = load(quick).tests["quick.vae"].bound
    assert call(["baseline", "build", str(quick), "-o", str(file), "--bound", "quick.vae=io"]) == 0
    made = load(file)
    assert made.tests["quick.vae"].bound == "io"
    assert f"quick.vae: bound by io, run as {was}" in made.provenance.notes
    assert call(["baseline", "build", str(quick), "--bound", "quick.vae=disk"]) == 2
    assert "a class is one of cpu, io, launch, links, gpu-compute, gpu-memory" in capsys.readouterr().err
    assert call(["baseline", "build", str(quick), "--bound", "quick.none=io"]) == 2
    assert "there is no test 'quick.none'" in capsys.readouterr().err


def test_tests_that_were_run_again_take_the_place_of_their_rows(
    quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again, file = tmp_path / "again", tmp_path / "mine.json"
    make_records.write_run(again, make_records.plan("quick", {"vae": PER_GPU}, 2, 4), lambda *_: 50.0, slices=24)
    assert call(["baseline", "build", str(quick), "--again", str(again), "-o", str(file)]) == 0
    made = load(file)
    assert (made.tests["quick.vae"].train, made.tests["quick.vae"].n) == (Stat(8, 50.0, 50.0, 50.0, 0.0), 8)
    assert made.tests["quick.convnet"] == msgspec.structs.replace(load(quick).tests["quick.convnet"], launches={})
    assert made.tests["quick.vae"].origin is not None
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
        made = json.loads(path.read_text())
        made["mnb"]["data"]["scale"] = 0.5
        path.write_text(json.dumps(made))
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
    tampering.record(lambda content: multiplied(content, 2))(quick)
    assert call(["baseline", "build", str(quick)]) == 2
    assert " breaks R4: quick.vae J" in capsys.readouterr().err


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


def basis(kinds: tuple[Arithmetic, ...] = ("fp32",)) -> RuleBasis:
    """Rates go as the square root of the peaks, give or take a tenth in the logarithm."""
    rule = TransferRule(slope=0.5, spread=0.1, df=4, moment=1e9)
    return RuleBasis(rule=rule, checks=(Held(left_out="workload", held=19, known=20),), kinds=frozenset(kinds))


def test_an_estimate_by_hand() -> None:
    h200, a100 = known_peak("NVIDIA H200", "test"), known_peak("A100-SXM4-80GB", "test")
    made = estimate(node(200.0, 400.0), h200, a100, "h200", basis())
    assert list(made.tests) == ["standard.convnet"]
    assert made.notes == ("standard.vae is left out: it is bound by cpu",)
    carried = made.tests["standard.convnet"]
    assert (carried.n, carried.failures, carried.train, carried.log_perf) == (0, 0, None, None)
    found = carried.estimate
    assert found is not None
    peaks = math.sqrt((19.5 / 66.9) * (2039 / 4800))
    width = math.exp(2.7764451 * 0.1)  # Student's t for 95 % at 4 degrees of freedom
    expected = [400 * math.sqrt(peaks) / width, 400 * math.sqrt(peaks), 400 * math.sqrt(peaks) * width]
    assert [found.low, found.value, found.high] == pytest.approx(expected, rel=1e-6)
    assert (found.held, found.known) == (19, 20)
    assert made.origin("standard.convnet") == "estimated"
    assert decode_summary(encode_summary(made).encode(), "estimate") == made


def test_the_shipped_a100_is_the_estimate_from_the_shipped_h200() -> None:
    h200 = load_baseline("h200")
    assert h200.provenance.kind == "measured"
    ours, theirs = known_peak(device_of(h200), "test"), known_peak("A100-SXM4-80GB", "test")
    made = estimate(h200, ours, theirs, "h200", RuleBasis.of(known_pairs()))
    shipped = load_baseline("a100")
    assert shipped.tests.keys() == made.tests.keys()
    for label, row_made in made.tests.items():
        was, now = shipped.tests[label].estimate, row_made.estimate
        assert was is not None
        assert now is not None
        assert [was.low, was.value, was.high] == pytest.approx([now.low, now.value, now.high], rel=1e-9)
        assert (was.held, was.known) == (now.held, now.known)
    assert (shipped.provenance, shipped.notes) == (made.provenance, made.notes)


def test_what_cannot_be_estimated() -> None:
    h200, v100 = known_peak("H200 SXM", "test"), known_peak("V100-SXM2-32GB", "test")
    tf32 = msgspec.structs.replace(node(1.0, 1.0), tests={"standard.convnet": row(1.0, precision=("tf32",))})
    with pytest.raises(InputError, match="V100-SXM2-32GB has no tf32"):
        estimate(tf32, h200, v100, "h200", basis(("fp32", "tf32")))
    with pytest.raises(InputError, match="no two devices are known that ran the same in fp32"):
        estimate(node(1.0, 1.0), h200, v100, "h200", basis(("half",)))
    assert peak("Tesla V100-SXM2-32GB") == v100
    with pytest.raises(InputError, match="there are H200 SXM"):
        known_peak("RTX 5000", "test")


def test_an_estimate_starts_from_a_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["baseline", "estimate", "v100", "--device", "A100-SXM4-80GB"]) == 2
    assert "v100 is published" in capsys.readouterr().err


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


def test_check_passes_a_clean_one(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["baseline", "check", str(quick)]) == 0
    assert "nothing implausible" in capsys.readouterr().out


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["baseline", "show", "v100"]) == 0
    out = capsys.readouterr().out
    assert "published" in out
    assert "classic items" in out
    assert isinstance(load_baseline("v100"), Summary)
    assert json.loads(encode_summary(load_baseline("v100")))["units"] == "classic"

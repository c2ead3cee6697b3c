"""Which weights hold for which suite of a result, and what is said of files that hold for none."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from test_score import row, summary

from milabench_ng.analysis.baselines.baseline import measured_again
from milabench_ng.analysis.scoring import weights
from milabench_ng.analysis.scoring.scale import Scale, files_of, load_scales
from milabench_ng.analysis.scoring.weights import read_weights
from milabench_ng.analysis.summary.contradictions import contradictions
from milabench_ng.analysis.summary.folder import decode_summary, encode_summary
from milabench_ng.analysis.summary.suites import by_suite
from milabench_ng.analysis.summary.summary import Summary, name_of_row, suite_of_row
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_json
from milabench_ng.report.reporting import build_report, with_suites


def of_suites(suite: str, suites: tuple[str, ...], *labels: str) -> Summary:
    made = summary({label: row(10.0) for label in labels})
    return msgspec.structs.replace(made, suite=suite, suites=suites)


BOTH = of_suites("both", ("modern", "standard"), "modern.moe", "standard.vae")


def written(place: Path, *labels: str) -> Path:
    file = place / "w.json"
    file.write_text(json.dumps({label: {"weight": 2} for label in labels}))
    return file


def test_a_file_holds_for_the_suites_that_it_weighs(tmp_path: Path) -> None:
    file = written(tmp_path, "modern.moe")
    read = read_weights(file, "modern")
    assert files_of(file, BOTH) == {"modern": read, "standard": None}
    assert files_of(None, BOTH) == {"modern": None, "standard": None}
    assert files_of(file, of_suites("modern", (), "modern.moe")) == {"modern": read}


def test_a_file_is_read_once_for_all_suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counted(path: Path) -> object:
        read.append(path)
        return read_json(path)

    monkeypatch.setattr(weights, "read_json", counted)
    file = written(tmp_path, "modern.moe", "standard.vae")
    load_scales(file, BOTH)
    assert read == [file]


def test_a_suite_by_a_name_that_looks_like_another_is_told_apart(tmp_path: Path) -> None:
    alike = msgspec.structs.replace(BOTH, suites=("st\u0430ndard", "modern"))
    with pytest.raises(InputError, match=r"the suites are modern and st\\u0430ndard"):
        load_scales(written(tmp_path, "standard.vae"), alike)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["mine.moe"], "w.json: mine.moe: the suites are modern and standard; correct its name"),
        (["standard.vae", "standart.toy_reg"], "standart.toy_reg: the suites are modern and standard"),
        (["left.out"], "the suites are modern and standard, but the file has no weights for its tests"),
    ],
)
def test_a_file_that_weighs_other_tests_is_refused(tmp_path: Path, labels: list[str], message: str) -> None:
    partial = msgspec.structs.replace(BOTH, omitted=("left.out",))
    with pytest.raises(InputError, match=message):
        load_scales(written(tmp_path, *labels), partial)


@pytest.mark.parametrize("labels", [["lambda.bert"], ["standard.vae", "standart.toy_reg"]])
def test_a_file_that_weighs_tests_of_another_suite_is_refused(tmp_path: Path, labels: list[str]) -> None:
    """By every command: over no test, or without one, there is no score, and no new run brings it."""
    file, run = written(tmp_path, *labels), of_suites("standard", (), "standard.vae")
    with pytest.raises(InputError, match=rf"w\.json: {labels[-1]}: the suite is standard; correct its name"):
        load_scales(file, run)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("vae", "w.json: vae: the suite is standard; correct its name, or leave it out (did you mean 'standard.vae'?)"),
        ("standard.conv", "w.json: standard.conv: no such test; .* (did you mean 'standard.convnet'?)"),
        ("standard.nope", "w.json: standard.nope: no such test; correct its name, or leave it out"),
    ],
)
def test_a_test_that_the_suite_has_not_is_refused(tmp_path: Path, label: str, said: str) -> None:
    """Not so one that this run left out."""
    run = of_suites("standard", (), "standard.vae")
    load_scales(written(tmp_path, "standard.vae", "standard.convnet", "standard.scaling.64"), run)
    with pytest.raises(InputError, match=said.translate({ord("("): r"\(", ord("?"): r"\?", ord(")"): r"\)"})):
        load_scales(written(tmp_path, "standard.vae", label), run)


@pytest.mark.parametrize("has_plan", [True, False])
def test_a_plan_says_what_a_suite_of_ones_own_has(tmp_path: Path, has_plan: bool) -> None:
    """Without it, a test may have failed in every launch."""
    run = msgspec.structs.replace(of_suites("mine", (), "mine.some"), has_plan=has_plan, omitted=("mine.other",))
    load_scales(written(tmp_path, "mine.some", "mine.other"), run)
    file = written(tmp_path, "mine.some", "mine.third")
    if has_plan:
        with pytest.raises(InputError, match=r"mine\.third: no such test"):
            load_scales(file, run)
    else:
        load_scales(file, run)


def test_each_of_several_suites_has_the_weights_of_its_own_tests(tmp_path: Path) -> None:
    found = load_scales(written(tmp_path, "modern.moe", "standard.vae", "standard.scaling.2"), BOTH)
    assert {suite: list(scale.weights or ()) for suite, scale in found.items()} == {
        "modern": ["modern.moe"],
        "standard": ["standard.vae", "standard.scaling.2"],
    }


def test_a_run_asks_for_weights_of_the_suites_of_its_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["jobs", "procurement", "--dry-run", "--name", "moe", "--weights"]
    assert call([*given, str(written(tmp_path, "procurement.moe"))]) == 2
    assert "procurement.moe: the suite is modern2; correct its name" in capsys.readouterr().err
    assert call([*given, str(written(tmp_path, "standard.vae"))]) == 2
    assert "the suite is modern2, but the file has no weights for its tests" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("unet3d.unet3d_train_fp32", "w.json: unet3d.unet3d_train_fp32: the suite is quick; correct its name"),
        ("quick.vea", "w.json: quick.vea: no such test; correct its name, or leave it out (did you mean 'quick.vae'?)"),
    ],
)
def test_weights_of_what_a_run_has_not_are_refused_before_its_work(
    label: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the first test of the file is: a score over what never runs would be invalid after hours."""
    weights = written(tmp_path, "quick.toy_reg", "quick.scaling.2", label)
    assert call(["jobs", "quick", "-o", str(tmp_path / "made"), "--weights", str(weights)]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "importing torch" not in said


@pytest.mark.parametrize("first", [("modern",), ()])
def test_a_test_of_another_suite_run_again_brings_its_suite(first: tuple[str, ...]) -> None:
    suite = first[0] if first else "both"
    whole = of_suites("both", first, f"{suite}.moe")
    whole = msgspec.structs.replace(whole, omitted=("standard.vae",))
    made = measured_again(whole, of_suites("both", ("standard",), "standard.vae"))
    assert made.suites == (suite, "standard")
    stored = decode_summary(encode_summary(made).encode(), "stored.json")
    assert [list(part.tests) for part in by_suite(stored)] == [[f"{suite}.moe"], ["standard.vae"]]


def test_steps_that_need_more_devices_are_told_of_the_whole() -> None:
    weights = {"modern.moe": 1.0, "modern.scaling.1": 1.0, "modern.scaling.9": 1.0}
    for tests, left_out in ((("modern.moe", "modern.scaling.1"), ("modern.scaling.9",)), (("modern.moe",), ())):
        part = build_report(of_suites("modern", (), *tests), "run", scale=Scale(weights=weights))
        assert with_suites(build_report(BOTH, "run"), [part]).steps_left_out == left_out


@pytest.mark.parametrize(
    ("label", "name"),
    [("modern.moe", "moe"), ("modern.eu.moe", "moe"), ("modern.eu.scaling.2", "scaling.2"), ("moe", "moe")],
)
def test_a_row_is_named_without_its_suite(label: str, name: str) -> None:
    assert name_of_row(label) == name


def test_a_suite_may_be_named_like_the_beginning_of_another() -> None:
    labels = ("modern.moe", "modern.eu.vae", "modern.eu.scaling.2")
    assert [suite_of_row(label) for label in labels] == ["modern", "modern.eu", "modern.eu"]
    made = of_suites("modern.eu", ("modern", "modern.eu"), *labels)
    assert list(contradictions(made)) == []
    assert [list(part.tests) for part in by_suite(made)] == [["modern.moe"], ["modern.eu.vae", "modern.eu.scaling.2"]]

"""Folders of 2020 against hand-computed numbers, and against an implementation that is not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import golden_2020
import make_records
import milarun_reader
import msgspec
import pytest

from milabench_ng.analysis.summary.folder import load
from milabench_ng.analysis.summary.summary import Stat, Summary


def as_2020(summary: Summary) -> dict[str, dict[str, Any]]:
    keys = ("n", "failures", "train", "total", "pergpu", "peak_memory")
    raw = json.loads(msgspec.json.encode(summary))["tests"]
    return {label: {key: row[key] for key in keys} | {"pergpu": row["pergpu"] or {}} for label, row in raw.items()}


def assert_same(found: object, expected: object, where: str = "") -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert found.keys() == expected.keys(), where
        for key in expected:
            assert_same(found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-9), where
    else:
        assert found == expected, where


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    golden_2020.write_golden(tmp_path / "golden")
    return tmp_path / "golden"


def test_hand_computed(golden: Path) -> None:
    summary = load(golden)
    vae, toy = summary.tests["golden.vae"], summary.tests["golden.toy"]
    assert (summary.suite, summary.units, summary.devices, summary.has_plan) == ("golden", "classic", 2, False)
    assert (vae.n, vae.failures, vae.peak_memory) == (4, 2, 900.0)
    assert vae.train == Stat(2, 10.0, 20.0, 15.0, 5.0)
    assert vae.total == Stat(2, 60.0, 80.0, 70.0, 10.0)
    assert vae.pergpu == {"0": Stat(1, 10.0, 10.0, 10.0, 0.0), "1": Stat(1, 20.0, 20.0, 20.0, 0.0)}
    assert [(failed.job_id, failed.cause) for failed in vae.failed] == [("1.0", "exception"), ("1.1", "nan")]
    assert vae.failed[0].detail == "RuntimeError: CUDA out of memory"
    assert toy.train == Stat(2, 2.0, 5.0, 3.5, 1.5)  # mean of 1, 2, 3 and of 5: all but the last two
    assert toy.pergpu == {"0": Stat(1, 2.0, 2.0, 2.0, 0.0)}  # unset counts as several devices
    assert toy.peak_memory == 12.0
    assert summary.tests["golden.scaling.2"].train == Stat(2, 4.0, 8.0, 6.0, 2.0)  # over the ranks
    assert summary.tests["golden.scaling.2"].peak_memory == 2.0
    assert summary.tests["golden.scaling.1"].devices == 1
    assert summary.problems == ()


def test_agrees_with_an_independent_reader(golden: Path) -> None:
    assert_same(as_2020(load(golden)), milarun_reader.summarize(golden))


def test_our_folders_agree_with_an_independent_reader(tmp_path: Path) -> None:
    """With slices of 0.5 s the window [stop - 10 s, stop - 1 s] is ``rates[-20:-2]``."""
    whole = make_records.plan("standard", {"vae": make_records.PER_GPU, "toy": make_records.PER_GPU}, 3, 4)
    make_records.write_run(tmp_path, whole)
    make_records.write(tmp_path, make_records.failed(whole.launches[0], "oom"), moment=99)
    assert_same(as_2020(load(tmp_path)), milarun_reader.summarize(tmp_path))


def test_our_progressions_agree_in_the_mean(tmp_path: Path) -> None:
    """Our statistics are over launches, those of 2020 over launches x ranks: same mean, their own spread."""
    whole = make_records.plan("standard", {"scaling": make_records.PROGRESSION}, 3, 2)
    make_records.write_run(tmp_path, whole)
    ours, theirs = as_2020(load(tmp_path)), milarun_reader.summarize(tmp_path)
    assert ours.keys() == theirs.keys() == {f"standard.scaling.{k}" for k in (1, 2, 3)}
    for label in theirs:
        assert ours[label]["train"]["mean"] == pytest.approx(theirs[label]["train"]["mean"], rel=1e-12)
        assert ours[label]["total"] == theirs[label]["total"]
    # ranks 0, 1, 2 at 100, 102, 104 in run 0 and 4 more in run 1
    assert ours["standard.scaling.3"]["train"] == {"n": 2, "min": 102.0, "max": 106.0, "mean": 104.0, "std": 2.0}


@pytest.mark.parametrize("rates", [[], [1.0], [1.0, 2.0]])
def test_two_slices_or_fewer_are_a_failure_with_a_cause(tmp_path: Path, rates: list[float]) -> None:
    """In 2020 this was a success whose NaN spoiled the mean of its test."""
    data = golden_2020.run("golden.vae", "0.0", {"train": rates})
    (tmp_path / "golden.vae.J0.0.20200801-120000-000000.json").write_text(json.dumps(data))
    row = load(tmp_path).tests["golden.vae"]
    assert (row.n, row.failures, row.train, row.failed[0].cause) == (1, 1, None, "short")


def test_a_progression_that_lost_its_ranks_is_a_failure(tmp_path: Path) -> None:
    """In 2020 a success without a number."""
    data = golden_2020.run("golden.scaling", "0.1", {}, scheme="gpu-progression", count=2, visible="0,1")
    (tmp_path / "golden.scaling.J0.1.20200801-120000-000000.json").write_text(json.dumps(data))
    row = load(tmp_path).tests["golden.scaling.2"]
    assert (row.n, row.failures, row.failed[0].cause) == (1, 1, "short")

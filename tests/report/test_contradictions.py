"""A stored summary that says two things at once is refused; what a row does not say is not made up."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import PER_GPU

from milabench_ng.analysis.scoring.compare import compare
from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.scoring.scored import scored_tests
from milabench_ng.analysis.scoring.subsets import sub_scores
from milabench_ng.analysis.statistics.intervals import LogStat, log_stat, repeats_needed
from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load, load_baseline
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.as_2020 import encode_2020

Change = Callable[[dict[str, Any]], object]
WEIGHTS = {"quick.vae": 1.0, "quick.convnet": 1.0}


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """100 items/s of vae, 400 of convnet, three repeats."""
    whole = make_records.plan("quick", {"vae": PER_GPU, "convnet": PER_GPU}, 1, 3)
    rates = {"quick.vae": 100.0, "quick.convnet": 400.0}
    make_records.write_run(tmp_path / "run", whole, lambda launch, _: rates[launch.test], slices=40)
    return load(tmp_path / "run")


def changed(summary: Summary, change: Change) -> bytes:
    """The stored summary with another row of vae."""
    stored = json.loads(encode_summary(summary))
    change(stored["tests"]["quick.vae"])
    return json.dumps(stored).encode()


REFUSED: dict[str, tuple[Change, str]] = {
    "estimated, with rates": (
        lambda row: row.update(origin={"kind": "estimated", "source": "h200 times 1.7"}),
        "quick.vae: it is called an estimate, but it has measured rates",
    ),
    "another mean": (lambda row: row["log_perf"].update(mean=3.9), "its log_perf is 3.900000 of 3"),
    "more repeats": (lambda row: row["log_perf"].update(n=50), "its log_perf is 4.605170 of 50"),
    "less spread": (lambda row: row["log_perf"].update(std=0.5), "+- 0.500000, and its repeats make it"),
    "a repeat of 0": (lambda row: row["repeats"].update({"0": 0.0}), "its repeats make it nothing"),
    "next to no rate": (
        lambda row: row.update(repeats={"0": 1e-320}, log_perf=None),
        "impossible rate: 1e-320 items/s",
    ),
    "no repeats": (lambda row: row["log_perf"].update(n=0), "at least 1."),
    "one repeat that spreads": (lambda row: row["log_perf"].update(n=1), "n is 1, but std is given"),
    "no spread of three": (lambda row: row["log_perf"].update(std=None), "n is 3, but std is missing"),
    "a mean beyond all rates": (lambda row: row["log_perf"].update(mean=800.0), "at most 35"),
    "a mean below all rates": (lambda row: row["log_perf"].update(mean=-800.0), "at least -35"),
    "a spread beyond all rates": (lambda row: row["log_perf"].update(std=1e300), "at most 50"),
    "a negative spread": (lambda row: row["log_perf"].update(std=-1.0), "at least 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_contradicts_itself_is_refused_in_one_message(
    case: str, summary: Summary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, told = REFUSED[case]
    file = tmp_path / "s.json"
    file.write_bytes(changed(summary, change))
    for command in (["report", str(file)], ["report", str(tmp_path / "run"), "--compare", str(file)]):
        assert call(command) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"mnb: {file}: not a summary")
        assert told in message
        assert message.count("\n") == 1


def test_a_flat_summary_of_2020_has_a_smallest_rate_too() -> None:
    row = {"n": 1, "failures": 0, "train": {"n": 1, "min": 1e-320, "max": 1e-320, "mean": 1e-320, "std": 0.0}}
    with pytest.raises(InputError, match="impossible rate"):
        decode_summary(json.dumps({"vae": row}).encode(), "old")


@pytest.mark.parametrize("name", ["v100", "rtx8000", "a100", "h200"])
def test_what_is_shipped_does_not(name: str) -> None:
    assert load_baseline(name).tests


def test_a_summary_of_its_own_is_read_back(summary: Summary) -> None:
    assert decode_summary(encode_summary(summary).encode(), "s") == summary


def test_a_row_that_does_not_say_what_its_items_are_is_left_out_by_name(summary: Summary) -> None:
    unknown = decode_summary(changed(summary, lambda row: row.update(classic_factor=None)), "s")
    found = score(unknown, WEIGHTS)
    assert (found.status, found.tests, found.of) == ("partial", 1, 2)
    assert found.per_device == pytest.approx(400.0, rel=1e-12)  # of convnet alone; 200 with vae at a factor of 1
    assert found.reasons == ("quick.vae has no record of what its items are",)
    for sub in sub_scores(unknown, scored_tests(unknown, WEIGHTS), WEIGHTS, found):
        assert sub.per_device == pytest.approx(400.0, rel=1e-12)
    for sides, who in (((unknown, summary), "the run"), ((summary, unknown), "the baseline")):
        other = compare(*sides, "base", WEIGHTS, score(sides[0], WEIGHTS))
        assert other.counted == ("quick.convnet",)
        assert other.reasons == {"quick.vae": f"{who} has no record of what its items are"}
        assert other.ratio == pytest.approx(1.0, rel=1e-12)
    of_2020 = json.loads(encode_2020(unknown))
    assert (of_2020["quick.vae"]["train"], of_2020["quick.vae"]["pergpu"]) == (None, {})


def test_where_every_launch_failed_nothing_is_0_of_any_items(summary: Summary) -> None:
    gone = {"train": None, "pergpu": None, "classic_factor": None, "log_perf": None, "repeats": {}, "failures": 3}
    failed = decode_summary(changed(summary, lambda row: row.update(gone)), "s")
    found = score(failed, WEIGHTS)
    assert (found.per_device, found.tests, found.reasons) == (0.0, 2, ())


def test_the_bounds_hold_the_smallest_and_the_largest_rate() -> None:
    stat = log_stat([1e-15, 1e15])  # logarithms -+34.539: mean 0, deviation 34.539 * sqrt(2)
    assert (stat.mean, stat.std) == pytest.approx((0.0, 15 * math.log(10) * math.sqrt(2)), abs=1e-9)
    assert msgspec.convert(msgspec.to_builtins(stat), LogStat) == stat
    assert log_stat([1e-16, 1.0]) is None


def test_a_spread_of_next_to_nothing_needs_no_more_repeats() -> None:
    assert repeats_needed([(1.0, LogStat(3, 0.0, 1e-160))]) == 2

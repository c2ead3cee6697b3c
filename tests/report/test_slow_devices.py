"""Which devices are called slow: the test by hand and against scipy, and what one repeat cannot tell."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import make_records
import msgspec
import numpy as np
import pytest
from make_records import PER_GPU
from printing import text_of
from scipy import stats

from milabench_ng.analysis.scoring.device_gaps import (
    DeviceGap,
    Layout,
    Matrix,
    device_gaps,
    gaps_over_tests,
    layout,
    log_matrix,
)
from milabench_ng.analysis.scoring.slow_devices import Behind, behind_among, noticed_of, slow_among
from milabench_ng.analysis.summary.folder import encode_summary, load
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli import call
from milabench_ng.model.plan import Launch
from milabench_ng.present.render.look_at import devices_compared, not_proven
from milabench_ng.present.render.next_step import TENDER, next_step
from milabench_ng.present.writers import Form, write_report
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import make_report

Rates = Mapping[str, Sequence[Sequence[float]]]
"""By test: a row of devices for each repeat."""


def reported(folder: Path, rates: Rates) -> Report:
    (repeats, *_) = rates.values()
    whole = make_records.plan("quick", dict.fromkeys(rates, PER_GPU), len(repeats[0]), len(repeats))

    def rate(launch: Launch, _: int) -> float:
        return 1e6 * rates[launch.test.partition(".")[2]][launch.run][launch.devices[0]]

    make_records.write_run(folder, whole, rate, slices=24)
    return make_report(folder)


def printed(report: Report, form: Form = "table") -> str:
    return " ".join(text_of(write_report, report, form).split())


def taken_apart(matrix: Matrix) -> Layout:
    found = layout(matrix)
    assert found is not None
    return found


def test_a_gap_by_hand() -> None:
    matrix = {"0": {"a": 0.0, "b": 1.0}, "1": {"a": 2.0, "b": 5.0}}
    low, high = device_gaps(taken_apart(matrix), "t")
    # Means: a 1, b 3, repeats 0.5 and 3.5, all 2. Residuals are +-0.5: one degree of freedom with a variance of 1.
    assert low == DeviceGap(device="a", test="t", mean=-2.0, error=1.0, df=1, repeats=2)
    assert (high.mean, high.error, high.df) == (2.0, 1.0, 1)
    assert low.p == pytest.approx(stats.t.sf(math.log(0.97) + 2.0, 1), rel=1e-12)
    assert high.p > 0.5


@pytest.mark.parametrize(("devices", "repeats", "noise"), [(2, 3, 0.004), (2, 5, 0.004), (8, 3, 0.01), (8, 5, 0.02)])
def test_how_likely_a_slow_device_is_noticed(devices: int, repeats: int, noise: float) -> None:
    """Against what is called in 2,000 drawn runs, of which each estimates the noise by itself."""
    rng = np.random.default_rng([devices, repeats])
    said, called = [], []
    for _ in range(2000):
        logs = rng.normal(0, noise, (repeats, devices)) + rng.normal(0, 0.1, (repeats, 1))
        logs[:, 0] += math.log(0.95)
        matrix = {str(run): {str(at): float(value) for at, value in enumerate(row)} for run, row in enumerate(logs)}
        gaps = gaps_over_tests([taken_apart(matrix)])
        said.append(
            noticed_of([msgspec.structs.replace(gap, error=true_error(devices, repeats, noise)) for gap in gaps])
        )
        called.append("0" in {slow.device for slow in slow_among(gaps)})
    assert np.mean(called) == pytest.approx(said[0], abs=4 * 0.5 / 2000**0.5)


def true_error(devices: int, repeats: int, noise: float) -> float:
    """Of a device's mean beside that of the others."""
    return noise * math.sqrt((1 + 1 / (devices - 1)) / repeats)


def test_what_silence_is_worth(tmp_path: Path) -> None:
    def alike(noise: float) -> str:
        rates = 1 + noise * np.array([[1, -1], [-1, 1], [1, -1], [-1, 1]])
        folder = tmp_path / str(noise)
        return printed(reported(folder, {"vae": rates.tolist()}))

    assert "; a GPU that is 5% slower would be found in 19 of 20 such runs" in alike(0.001)
    assert "; a GPU that is 5% slower would be found in 0 of 20 such runs" in alike(0.05)


@pytest.mark.parametrize(("noise", "tone"), [(0.001, "good"), (0.05, "plain")])
def test_a_silence_that_is_worth_little_is_not_green(tmp_path: Path, noise: float, tone: str) -> None:
    rates = 1 + noise * np.array([[1, -1], [-1, 1], [1, -1], [-1, 1]])
    report = reported(tmp_path / "run", {"vae": rates.tolist()})
    assert report.gpus is not None
    assert devices_compared(report, report.gpus).tone == tone


def test_two_devices_are_a_paired_t_test() -> None:
    rng = np.random.default_rng(3)
    logs = rng.normal(0, 0.01, (6, 2)) + rng.normal(0, 0.1, (6, 1))  # what a repeat does to both cancels
    matrix = {str(i): {"a": float(a), "b": float(b)} for i, (a, b) in enumerate(logs)}
    (found, _) = gaps_over_tests([taken_apart(matrix)])
    known = stats.ttest_rel(logs[:, 0], logs[:, 1] + math.log(0.97), alternative="less")
    assert found.df == pytest.approx(5)
    assert found.p == pytest.approx(known.pvalue, rel=1e-9)


def test_one_repeat_gives_no_verdict_but_the_command_that_does(tmp_path: Path) -> None:
    """Two devices 5 % apart in one launch: with a run-to-run spread of 2 %, one pair in thirteen is."""
    report = reported(tmp_path / "run", {"vae": [[1.0, 0.95]]})
    assert (report.gpus.stragglers, report.gpus.overall, report.gpus.judged) == ((), (), False)
    assert "Look at GPU 1 is behind the best in vae (-5%). Run more repeats before judging" in printed(report)
    commands = re.findall(rf"mnb {TENDER}|mnb jobs", printed(report))
    assert commands == [f"mnb {TENDER}"], "one suggestion on a screen"
    told = "one repeat cannot tell a slow device from a slow launch: mnb jobs quick --repeat 5 --name vae"
    assert told in printed(msgspec.structs.replace(report, show_gpus=True))


def test_each_device_answers_for_its_own_tests_only(tmp_path: Path) -> None:
    rates = {"vae": [[1.0, 0.8]], "convnet": [[0.94, 1.0]], "toy_lstm": [[0.9, 1.0]]}
    told = printed(reported(tmp_path / "run", rates))
    assert (
        "GPU 0 is behind the best in 2 tests, most in toy_lstm (-10%); GPU 1 is behind the best in vae (-20%)" in told
    )


def test_what_a_repeat_does_to_all_devices_hides_no_slow_one(tmp_path: Path) -> None:
    shared = (1.0, 0.8, 1.2, 0.9, 1.1)
    wobble = (1.001, 0.999, 1.0, 1.002, 0.998)
    repeats = [[at, at * odd, at * 0.94 / odd, at] for at, odd in zip(shared, wobble, strict=True)]
    report = reported(tmp_path / "run", {"vae": repeats, "convnet": repeats})
    assert {(slow.device, slow.test) for slow in report.gpus.stragglers} == {("2", "quick.vae"), ("2", "quick.convnet")}
    (slow,) = report.gpus.overall
    assert (slow.device, slow.effect_pct) == ("2", pytest.approx(-6.0, abs=0.1))
    assert "slow over all tests: GPU 2 (-6.0%)" in printed(report)


def test_devices_within_3_percent_are_never_slow_however_often_they_ran(tmp_path: Path) -> None:
    report = reported(tmp_path / "run", {"vae": [[1.0, 0.975]] * 12})
    assert report.gpus.judged
    assert report.gpus.stragglers == report.gpus.overall == ()


def test_a_repeat_that_lacks_a_device_is_left_out(tmp_path: Path) -> None:
    reported(tmp_path / "run", {"vae": [[1.0, 0.9]] * 3, "convnet": [[1.0, 0.9]] * 3})
    next((tmp_path / "run").glob("quick.vae.J1.0.*.json")).unlink()
    tests = load(tmp_path / "run").tests
    vae, convnet = (taken_apart(log_matrix(tests[label], ["0", "1"])) for label in ("quick.vae", "quick.convnet"))
    assert (vae.repeats, convnet.repeats) == (2, 3)
    found = gaps_over_tests([vae, convnet])
    assert [gap.repeats for gap in found] == [2, 2]
    assert found[1].mean == pytest.approx(math.log(0.9), abs=1e-6)


def test_over_tests_every_batch_counts() -> None:
    """Two tests of two repeats, by hand: residuals of 0.01 and 0.03, of which the repeats have nothing in common."""
    one = taken_apart({"0": {"a": 0.04, "b": 0.0}, "1": {"a": 0.0, "b": 0.0}})
    other = taken_apart({"0": {"a": 0.0, "b": 0.0}, "1": {"a": 0.12, "b": 0.0}})
    # Gaps 0.02 and 0.06. Variances of a gap: 4 * 0.01^2 / 1 / 2 * 2 = 0.0004, and 0.0036.
    assert [layout.variance for layout in (one, other)] == pytest.approx([0.0004, 0.0036])
    gap, _ = gaps_over_tests([one, other])
    # The repeats differ by 0.02 in the mean, residuals of 0.01: 0.0004, less than 0.0010 of the batches.
    assert (gap.mean, gap.error) == (pytest.approx(0.04), pytest.approx(0.001**0.5))
    assert gap.df == pytest.approx(0.001**2 / (0.0001**2 + 0.0009**2))


def test_a_device_that_is_slower_in_a_whole_repeat_has_few_degrees_of_freedom() -> None:
    same = [taken_apart({"0": {"a": 0.0, "b": 0.0}, "1": {"a": -0.1, "b": 0.0}}) for _ in range(9)]
    gap, _ = gaps_over_tests(same)
    # Nine equal tests are one: 0.0025 of repeats with one degree of freedom, of which batches explain a ninth.
    assert (gap.mean, gap.error) == (pytest.approx(-0.05), pytest.approx(0.05))
    batches, added = 0.0025 / 9, 0.0025 * 8 / 9
    assert gap.df == pytest.approx(0.0025**2 / (batches**2 / 9 + added**2))


def test_half_of_the_error_is_for_verdicts_over_all_tests() -> None:
    def gap(test: str | None, wide: float) -> DeviceGap:
        return DeviceGap(device="1", test=test, mean=math.log(0.97) - wide, error=1.0, df=math.inf, repeats=3)

    single = [gap(f"t{index}", 0.0) for index in range(100)]
    (slow,) = slow_among([*single, gap(None, 2.0)])
    assert (slow.test, slow.p) == (None, pytest.approx(2 * stats.norm.sf(2.0), rel=1e-9))
    assert slow_among([*single, gap(None, 1.95)]) == []


SUITE = tuple(f"test{index}" for index in range(12))


def noisy(folder: Path, seed: int, noise: float, slow: float = 0.15, repeats: int = 3) -> Report:
    """Two GPUs on a host whose other users slow each tenant down by itself; GPU 1 is slower in all tests."""
    rng = np.random.default_rng(seed)

    def drawn() -> list[list[float]]:
        logs = rng.normal((0.0, math.log1p(-slow)), noise, (repeats, 2))
        return [[float(rate) for rate in row] for row in np.exp(logs)]

    return reported(folder, {test: drawn() for test in SUITE})


@pytest.mark.parametrize("seed", range(4))
def test_a_device_15_percent_slower_in_36_batches_is_found_on_a_noisy_host(tmp_path: Path, seed: int) -> None:
    report = noisy(tmp_path / "run", seed, 0.08)
    (slow,) = report.gpus.overall
    assert (slow.device, slow.effect_pct) == ("1", pytest.approx(-15, abs=5))
    assert f"slow over all tests: GPU 1 ({slow.effect_pct:+.1f}%)" in printed(report)
    assert report.gpus.behind == ()


def test_what_is_not_proven_is_not_cleared(tmp_path: Path) -> None:
    """All forms say the same, with the command that would tell."""
    report = noisy(tmp_path / "run", 0, 0.3)
    assert report.gpus.overall == ()
    (behind,) = report.gpus.behind
    assert (behind.device, behind.repeats) == ("1", 3)
    told = f"GPU 1 is {-behind.effect_pct:.1f}% behind over all tests, not proven with 3 repeats"
    command = f"mnb jobs quick --repeat {behind.repeats_needed}"
    assert f"Look at {told}: {command}" in printed(report)
    own = msgspec.structs.replace(report, summary=msgspec.structs.replace(report.summary, suite="own"))
    of_file = f"mnb jobs {own.folder.manifest.profile.file} --repeat {behind.repeats_needed}"
    assert f"{told}: {of_file}" in printed(own), "a profile that is not shipped is named as it was"
    weights = tmp_path / "weights.json"
    weights.write_text(json.dumps({f"quick.{test}": {"weight": 1} for test in SUITE}))
    scored = make_report(tmp_path / "run", weights=weights)
    bid = msgspec.structs.replace(scored, summary=msgspec.structs.replace(scored.summary, suite="standard"))
    assert next_step(bid) == f"for a verdict, with today's standard: mnb jobs standard --repeat {behind.repeats_needed}"
    assert "no GPU is slow" not in printed(report)
    full = printed(msgspec.structs.replace(report, show_gpus=True), "markdown")
    assert f"| 1 | all | {behind.effect_pct:.1f} |" in full
    assert "| not proven |" in full
    assert f"{told}: {command}" in full
    (written,) = json.loads(printed(report, "json"))["gpus"]["behind"]
    assert written == msgspec.structs.asdict(behind)
    page = tmp_path / "report.html"
    options = ("--per-gpu", "--html", str(page), "-o", str(tmp_path / "report.txt"))
    call(["report", str(tmp_path / "run"), *options])
    assert f"{told}: {command}" in page.read_text()


def test_how_many_repeats_would_tell() -> None:
    """As many as find it in four of five runs, and none where a hundred would not."""
    gap = DeviceGap(device="1", test=None, mean=math.log(0.9), error=0.05, df=20, repeats=3)
    (found,) = behind_among([gap])
    needed = found.repeats_needed
    assert needed is not None

    def power(repeats: int) -> float:
        df = 20 * (repeats - 1) / 2
        away = (math.log(0.97) - math.log(0.9)) / (0.05 * math.sqrt(3 / repeats))
        return float(stats.nct.sf(stats.t.ppf(0.95, df), df, away))

    assert power(needed - 1) < 0.8 <= power(needed)
    (hardly,) = behind_among([msgspec.structs.replace(gap, mean=math.log(0.969))])
    assert hardly.repeats_needed is None


def test_devices_that_may_be_slow_are_told_worst_first(tmp_path: Path) -> None:
    summary = load_summary(tmp_path)
    few = [Behind(device=str(at), effect_pct=-4.0 - at, p=0.2, repeats=3, repeats_needed=5 + at) for at in (2, 1)]
    text = not_proven(summary, few, "GPU", "quick")
    assert text == (
        "GPU 2 is 6.0% behind over all tests, GPU 1 is 5.0% behind, not proven with 3 repeats: "
        "mnb jobs quick --repeat 7"
    )
    some = msgspec.structs.replace(summary, omitted=("quick.convnet",))
    assert not_proven(some, few, "GPU", "quick").endswith("--repeat 7 --name vae"), "only what was run"
    hardly = [msgspec.structs.replace(one, repeats_needed=None) for one in few[:1]]
    assert not_proven(summary, hardly, "GPU", "quick").endswith(
        "not proven with 3 repeats; proof would need more than 100"
    )


def load_summary(folder: Path) -> Summary:
    reported(folder / "run", {"vae": [[1.0, 0.9]] * 2})
    return load(folder / "run")


def test_a_stored_summary_says_the_same(tmp_path: Path) -> None:
    report = noisy(tmp_path / "run", 0, 0.3)
    stored = tmp_path / "run.json"
    stored.write_text(encode_summary(load(tmp_path / "run")))
    assert make_report(stored).gpus == report.gpus

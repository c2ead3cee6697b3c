"""Which devices are called slow: the test by hand and against scipy, and what one repeat cannot tell."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import make_records
import msgspec
import numpy as np
import pytest
from make_records import PER_GPU
from scipy import stats

from milabench_ng.analysis.scoring.slow_devices import (
    DeviceGap,
    device_gaps,
    log_matrix,
    noticed_of,
    over_tests,
    slow_among,
)
from milabench_ng.analysis.summary.folder import load
from milabench_ng.plan import Launch
from milabench_ng.present.render.next_step import TENDER
from milabench_ng.present.writers import write_report
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


def printed(report: Report) -> str:
    stream = io.StringIO()
    write_report(report, "table", stream)
    return " ".join(stream.getvalue().split())


def test_a_gap_by_hand() -> None:
    matrix = {"0": {"a": 0.0, "b": 1.0}, "1": {"a": 2.0, "b": 5.0}}
    low, high = device_gaps(matrix, "t")
    # Means: a 1, b 3, repeats 0.5 and 3.5, all 2. Residuals are +-0.5: one degree of freedom with a variance of 1.
    assert low == DeviceGap(device="a", test="t", mean=-2.0, error=1.0, df=1)
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
        gaps = device_gaps(matrix, None)
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

    assert "; a GPU 5 % slower would be noticed in 19 of 20 such runs" in alike(0.001)
    assert "; a GPU 5 % slower would be noticed in 0 of 20 such runs" in alike(0.05)


def test_two_devices_are_a_paired_t_test() -> None:
    rng = np.random.default_rng(3)
    logs = rng.normal(0, 0.01, (6, 2)) + rng.normal(0, 0.1, (6, 1))  # what a repeat does to both cancels
    found = device_gaps({str(i): {"a": float(a), "b": float(b)} for i, (a, b) in enumerate(logs)}, None)[0]
    known = stats.ttest_rel(logs[:, 0], logs[:, 1] + math.log(0.97), alternative="less")
    assert found.df == 5
    assert found.p == pytest.approx(known.pvalue, rel=1e-9)


def test_one_repeat_gives_no_verdict_but_the_command_that_does(tmp_path: Path) -> None:
    """Two devices 5 % apart in one launch: with a run-to-run spread of 2 %, one pair in thirteen is."""
    report = reported(tmp_path / "run", {"vae": [[1.0, 0.95]]})
    assert report.gpus is not None
    assert (report.gpus.stragglers, report.gpus.overall, report.gpus.judged) == ((), (), False)
    assert "Look at GPU 1 behind the best in 1 test, most in vae (-5 %)" in printed(report)
    assert "most in vae (-5 %): repeat before judging" in printed(report)
    commands = re.findall(r"mnb jobs [^\n,]*", printed(report))
    assert commands == [f"mnb {TENDER}"], "one suggestion on a screen"
    told = "one repeat does not tell a slow device from a slow launch: mnb jobs quick --repeat 5 --name vae"
    assert told in printed(msgspec.structs.replace(report, show_gpus=True))


def test_what_a_repeat_does_to_all_devices_hides_no_slow_one(tmp_path: Path) -> None:
    shared = (1.0, 0.8, 1.2, 0.9, 1.1)
    wobble = (1.001, 0.999, 1.0, 1.002, 0.998)
    repeats = [[at, at * odd, at * 0.94 / odd, at] for at, odd in zip(shared, wobble, strict=True)]
    report = reported(tmp_path / "run", {"vae": repeats, "convnet": repeats})
    assert report.gpus is not None
    assert {(slow.device, slow.test) for slow in report.gpus.stragglers} == {("2", "quick.vae"), ("2", "quick.convnet")}
    (slow,) = report.gpus.overall
    assert (slow.device, slow.effect_pct) == ("2", pytest.approx(-6.0, abs=0.1))
    assert "slow over all tests: GPU 2 (-6.0 %)" in printed(report)


def test_devices_within_3_percent_are_never_slow_however_often_they_ran(tmp_path: Path) -> None:
    report = reported(tmp_path / "run", {"vae": [[1.0, 0.975]] * 12})
    assert report.gpus is not None
    assert report.gpus.judged
    assert report.gpus.stragglers == report.gpus.overall == ()


def test_a_repeat_that_lacks_a_device_is_left_out(tmp_path: Path) -> None:
    reported(tmp_path / "run", {"vae": [[1.0, 0.9]] * 3, "convnet": [[1.0, 0.9]] * 3})
    next((tmp_path / "run").glob("quick.vae.J1.0.*.json")).unlink()
    tests = load(tmp_path / "run").tests
    vae, convnet = (log_matrix(tests[label], ["0", "1"]) for label in ("quick.vae", "quick.convnet"))
    assert [len(vae), len(convnet), len(over_tests([vae, convnet]))] == [2, 3, 2]

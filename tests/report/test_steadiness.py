"""Drift, sawtooth, no steady state, outliers: found where they are, and not where they are not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import make_records
import pytest
from make_records import PER_GPU

from milabench_ng.analysis.launch.steadiness import MIN_SLICES, odd_shape
from milabench_ng.analysis.summary.folder import load
from milabench_ng.model.plan import Launch
from milabench_ng.records.window import SliceRow

Course = Callable[[int], float]
"""The rate, 1 being usual, of the slice with this number (of 120)."""


def kind(course: Course, noise: float = 0.01, slices: int = 120, seed: int = 3) -> str | None:
    rng = random.Random(seed)
    rows = [
        SliceRow(0.5 * i, 0.5, round(1_000_000 * course(i) * (1 + rng.gauss(0, noise))), 5, 0.0) for i in range(slices)
    ]
    found = odd_shape(rows, 0.0, 0.5 * slices - 9.0, 0.5 * slices)
    return found.kind if found else None


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        (lambda _: 1.0, None),
        (lambda i: 1 - 0.1 * i / 120, "drift"),
        (lambda i: 1 + 0.05 * i / 120, "drift"),
        (lambda i: 1 - 0.015 * i / 120, None),  # under 3 %
        (lambda i: 1 - 0.2 * (i % 30) / 30, "sawtooth"),
        (lambda i: 1 + 0.1 * (i // 15 % 2), "sawtooth"),
        (lambda i: 1 - 0.1 * (i >= 90), "no steady state"),
        (lambda i: 1 - 0.1 * (i < 20), None),  # warmed up long before the window
        (lambda i: 1 - 0.5 * (i % 20 == 0), None),  # single slow slices
    ],
)
def test_shapes(course: Course, expected: str | None) -> None:
    assert kind(course) == expected


def test_noise_alone_is_hardly_ever_a_finding() -> None:
    found = [kind(lambda _: 1.0, noise, seed=seed) for noise in (0.005, 0.02, 0.05) for seed in range(200)]
    assert sum(shape is not None for shape in found) <= 6  # 1 %


def test_a_step_in_a_short_launch_is_found_and_of_fewer_than_twelve_slices_nothing() -> None:
    assert kind(lambda i: 1.0 + 0.1 * (i >= 9), slices=18) == "no steady state"
    assert kind(lambda i: 1.0 + 0.02 * (i >= 9), slices=18) is None  # under 3 %
    assert kind(lambda i: 1 - 0.01 * i, slices=18) == "drift"
    assert kind(lambda i: 1.0 + 0.3 * (i >= 5), slices=MIN_SLICES - 1) is None
    rates = [441, 443, 443, 377, 316, 312, 316, 334, 338, 293, 294, 302]  # a loader's buffers run dry
    assert kind(lambda i: rates[i] / 441, noise=0.0, slices=len(rates)) is not None


def test_a_throttle_inside_the_window_of_a_long_launch_is_found() -> None:
    """In the launch it is 8 of 240 slices, in the window 8 of 18."""
    rng = random.Random(5)
    rates = [(0.8 if i >= 232 else 1.0) * (1 + rng.gauss(0, 0.05)) for i in range(240)]
    rows = [SliceRow(0.5 * i, 0.5, round(1_000_000 * rate), 5, 0.0) for i, rate in enumerate(rates)]
    found = odd_shape(rows, 0.0, 111.0, 120.0)
    assert found.kind == "no steady state"
    assert found.detail.endswith("after 56% of the window")  # ten of 18 slices were at full speed


def test_where_the_step_is_by_hand() -> None:
    """Ten slices at 1 and ten at 0.8, with pairs of 1 % noise: the sum goes to 10 x 0.1, over 0.02 x sqrt(20)."""
    found = kind(lambda i: (1.0 if i < 10 else 0.8) + 0.01 * (-1) ** i, noise=0.0, slices=20)
    assert found == "no steady state"


def test_only_the_time_after_the_start_counts() -> None:
    rows = [SliceRow(0.5 * i, 0.5, 100 if i >= 20 else 10 * (20 - i), 5, 0.0) for i in range(80)]
    assert odd_shape(rows, 10.0, 30.0, 40.0) is None


def test_a_long_first_slice_and_what_follows_it_are_not_judged(tmp_path: Path) -> None:
    """ssd on an H200: autotuning, then the loader's buffers run dry, then its own pace."""
    whole = make_records.plan("standard", {"ssd": PER_GPU}, 1, 1)
    steady = [[109.0 + i, 1.0, 290 + i % 3, 5, 0.7] for i in range(16)]
    burst = [[107.0 + 0.5 * i, 0.5, 220, 5, 0.0] for i in range(4)]
    slices = [[100.0, 7.0, 64, 1, 0.0], *burst, *steady]
    made = make_records.record(whole.launches[0], make_records.steady, start_s=100.0, stop_s=125.0)
    made["mnb"]["ranks"][0]["slices"] = slices
    make_records.write_manifest(tmp_path, whole)
    make_records.write(tmp_path, made)
    row = load(tmp_path).tests["standard.ssd"]
    assert (row.n, row.failures, row.flags) == (1, 0, ())
    assert (
        odd_shape([SliceRow(*row) for row in slices], 102.0, 115.0, 124.0) is not None
    )  # judged from 2 s on it would be odd


def test_an_outlier_is_named_with_its_reason_and_counts(tmp_path: Path) -> None:
    whole = make_records.plan("standard", {"vae": PER_GPU}, 2, 6)
    rng = random.Random(1)
    perfs = {launch.job_id: 100_000 * (1 + rng.gauss(0, 0.002)) for launch in whole.launches} | {"3.1": 90_000.0}
    perfs["4.0"] = 108_000.0

    def rate(launch: Launch, _: int) -> float:
        return perfs[launch.job_id]

    make_records.write_run(tmp_path, whole, rate)
    slow = next(launch for launch in whole.launches if launch.job_id == "3.1")
    next(tmp_path.glob("standard.vae.J3.1.*")).unlink()
    held = {"kind": "throttled", "device": "1", "what": "hw_thermal"}
    make_records.write(tmp_path, make_records.record(slow, rate, marks=[held]), 99)
    row = load(tmp_path).tests["standard.vae"]
    found = {flag.job_id: flag for flag in row.flags}
    assert {(job, flag.kind) for job, flag in found.items()} == {("3.1", "outlier"), ("4.0", "outlier")}
    assert found["3.1"].detail.startswith("-9.9% vs. its device")
    assert "GPU clocks throttled" in found["3.1"].detail
    assert "the record shows no reason" in found["4.0"].detail
    assert row.launches["3.1"] == 90_000.0
    assert row.train.n == 12

"""The rule by which rates carry over: by hand, and on every pair of devices whose rates are known."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from estimates.carrying import Held, KnownPair, TransferRule, learn, validate
from estimates.estimated_baseline import RuleBasis, estimate
from estimates.known_peaks import distance, known_peak
from estimates.known_rates import (
    GPU_BOUND,
    OWN,
    device_of,
    known_pairs,
    own_rates,
    pairs_of,
    published,
)
from test_money import node, row

from milabench_ng.analysis.baselines.peaks import Arithmetic, arithmetic_of, peak
from milabench_ng.analysis.statistics.intervals import t_quantile
from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load_baseline
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError

ROOT = Path(__file__).parents[2]
OLD = ("v100", "rtx8000")


def pair(workload: str, peaks: float, rates: float, devices: tuple[str, str] = ("a", "b")) -> KnownPair:
    return KnownPair(
        study="s",
        workload=workload,
        computation=workload,
        arithmetic="fp32",
        devices=devices,
        peaks=peaks,
        rates=rates,
    )


def test_the_rule_by_hand() -> None:
    """One workload with two pairs, one with one: each workload has weight 1, a pair of the first 1/2."""
    pairs = [pair("w", 1.0, 1.0), pair("w", 2.0, 1.0, ("a", "c")), pair("v", 1.0, 0.5)]
    rule = learn(pairs)
    squares = 0.5 * 1 + 0.5 * 4 + 1
    slope = (0.5 * 1.0 + 0.5 * 2.0 + 0.5) / squares
    assert rule.slope == pytest.approx(slope, rel=1e-12)
    errors = 0.5 * (1 - slope) ** 2 + 0.5 * (1 - 2 * slope) ** 2 + (0.5 - slope) ** 2
    assert rule.spread == pytest.approx(math.sqrt(errors / 2 * 2 / 1), rel=1e-12)
    assert (rule.df, rule.moment) == (1, pytest.approx(squares, rel=1e-12))
    width = t_quantile(0.975, 1) * rule.spread * math.sqrt(1 + 9 / squares)
    assert rule.half_width(3.0) == pytest.approx(width, rel=1e-12)
    assert rule.holds(pair("x", 3.0, 3 * slope + 0.999 * width))
    assert not rule.holds(pair("x", 3.0, 3 * slope + 1.001 * width))
    with pytest.raises(ValueError, match="1 workloads"):
        learn(pairs[:2])


def test_a_pair_is_judged_by_a_rule_that_has_not_seen_it() -> None:
    """Three that agree to a hundredth and one far off: seen, it would widen the band until it held itself."""
    rates = [0.99, 1.0, 1.01, 9.0]
    pairs = [pair(f"w{at}", 1.0, rate, (f"a{at}", f"b{at}")) for at, rate in enumerate(rates)]
    assert all(learn(pairs).holds(each) for each in pairs)
    by_workload, by_devices, _ = validate(
        pairs[:3] + pairs[3:] + [KnownPair(**{**as_dict(each), "study": "t"}) for each in pairs[:3]]
    )
    assert (by_workload.known, by_workload.held) == (7, 6)
    assert by_devices.held == 6


def as_dict(each: KnownPair) -> dict[str, object]:
    return {name: getattr(each, name) for name in KnownPair.__struct_fields__}


def test_the_band_holds_the_known_pairs_as_often_as_it_says() -> None:
    """Whatever is left out: a workload, two devices, a study."""
    for found in validate(known_pairs()):
        assert found.known > 300
        assert found.held / found.known > 0.94, found


def gpu_bound(measured: Summary) -> list[str]:
    return [
        label
        for label, row in measured.tests.items()
        if row.work.scheme == "per-gpu" and row.work.bound in GPU_BOUND and row.train is not None
    ]


@pytest.mark.parametrize("name", OLD)
def test_each_test_that_the_gpu_bounds_is_held_from_h200_to_the_published_figures(name: str) -> None:
    """By rules without the test, and without any of our pairs; the rule before held one of the six."""
    h200, old = load_baseline("h200"), load_baseline(name)
    ours, theirs = known_peak(device_of(h200), "h200"), known_peak(device_of(old), name)
    labels = gpu_bound(h200)
    assert {"standard.translator", "standard.wlm", "standard.convnet", "standard.fast_style"} <= set(labels)
    for label in labels:
        run, base = h200.tests[label], old.tests[label]
        step = distance(ours, theirs, arithmetic_of(run.work.precision[0]))
        assert step is not None
        truth = math.log(base.train.mean / (run.train.mean * (run.work.classic_factor or math.nan)))
        known = pair(label, step, truth, (ours.name, theirs.name))
        without_the_test = learn([each for each in known_pairs() if each.workload != label])
        without_ours = learn([each for each in known_pairs() if each.study != "mnb"])
        assert without_the_test.holds(known), (label, truth, step)
        assert without_ours.holds(known), (label, truth, step)


def test_own_pairs_are_of_the_same_work_and_of_tests_that_the_gpu_bounds_on_both_sides() -> None:
    study = own_rates([load_baseline(name) for name in OWN])
    devices = {one.workload: set(one.rates) for one in study.computations}
    assert devices["standard.convnet"] == {"NVIDIA H200", "NVIDIA V100", "NVIDIA Quadro RTX 8000"}
    assert len(devices["standard.fast_style"]) == 1  # its loader set the pace in 2020
    assert "standard.scaling.1" not in devices
    assert not devices.keys() & {"standard.recom", "standard.atari"}


def test_published_rates_make_pairs_across_architectures_only() -> None:
    studies = published()
    assert all(study.source and study.note for study in studies.values())
    pairs = [each for name, study in studies.items() for each in pairs_of(name, study)]
    assert all(
        known_peak(each.devices[0], "x").architecture != known_peak(each.devices[1], "x").architecture for each in pairs
    )
    assert {each.arithmetic for each in pairs} == {"fp32", "tf32", "half"}
    one = next(each for each in pairs if (each.study, each.computation) == ("lambda-2020", "gnmt fp32"))
    rates = next(each.rates for each in studies["lambda-2020"].computations if each.name == "gnmt fp32")
    assert one.rates == pytest.approx(math.log(rates[one.devices[1]] / rates[one.devices[0]]), rel=1e-12)
    arithmetic, memory = {"Quadro RTX 8000": (16.3, 672), "V100-SXM2-32GB": (15.7, 900)}, one.devices
    step = sum(math.log(arithmetic[memory[1]][at] / arithmetic[memory[0]][at]) for at in (0, 1)) / 2
    assert one.peaks == pytest.approx(step, rel=1e-12)


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
    with pytest.raises(InputError, match="there are GB300, B300"):
        known_peak("RTX 5000", "test")


def test_an_estimate_starts_from_a_measurement() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "estimate-baseline", "v100", "--device", "A100-SXM4-80GB"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "v100 is published; an estimate starts from what was measured" in done.stderr

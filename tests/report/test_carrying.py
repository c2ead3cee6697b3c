"""The rule by which rates carry over: by hand, and on every pair of devices whose rates are known."""

from __future__ import annotations

import math

import pytest

from milabench_ng.report.baselines.carrying import KnownPair, learn, validate
from milabench_ng.report.baselines.known_rates import (
    GPU_BOUND,
    OWN,
    device_of,
    known_pairs,
    own_rates,
    pairs_of,
    published,
)
from milabench_ng.report.baselines.peaks import arithmetic_of, distance, known_peak
from milabench_ng.report.statistics.intervals import t_quantile
from milabench_ng.report.summary.folder import load_baseline
from milabench_ng.report.summary.summary import Summary

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
        if row.scheme == "per-gpu" and row.bound in GPU_BOUND and row.train is not None
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
        assert run.train is not None
        assert base.train is not None
        step = distance(ours, theirs, arithmetic_of(run.precision[0]))
        assert step is not None
        truth = math.log(base.train.mean / (run.train.mean * (run.classic_factor or math.nan)))
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

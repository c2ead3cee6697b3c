"""The verdict of a health check, on made-up nodes of which the truth is known. Seeded."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from milabench_ng.analysis.scoring.other_machine import GPU_DAY_STD, HOST_DAY_STD, ON_THE_GPU
from milabench_ng.analysis.statistics.intervals import session_stat
from milabench_ng.analysis.summary.summary import FailedLaunch, Provenance, Stat, Summary, TestSummary
from milabench_ng.records.marks import Mark
from milabench_ng.records.work import Work
from milabench_ng.tender.health import health, why_not_stored

TESTS = {"check.decode": "gpu-memory", "check.pretrain": "gpu-compute", "check.h2d": "links"}
REPEATS = 5
GPUS, CPUS = "NVIDIA H200", "CPU"
WINDOW = Mark(kind="window shortened", value=3.0, limit=9.0)
BUSY = Mark(kind="foreign CPU load", value=80.0, limit=15.0)


def node(
    rng: np.random.Generator,
    model: str = GPUS,
    devices: int = 8,
    slow: dict[int, float] | None = None,
    all_by: float = 1.0,
) -> Summary:
    """A check of a node on some day. ``slow``: what devices do of what they should, ``all_by``: what all do.

    A day does the same to all tests of a class, as declared: 0.5 % where GPUs bound them, 5 % elsewhere. Launches
    differ by 0.5 % and 3 %, GPUs of a kind by 0.7 %.
    """
    launch, device = (0.005, 0.007) if model == GPUS else (0.03, 0.0)
    own = device * rng.standard_normal(devices)
    own += np.log([all_by * (slow or {}).get(each, 1.0) for each in range(devices)])
    gpu_day, host_day = GPU_DAY_STD * rng.standard_normal(), HOST_DAY_STD * rng.standard_normal()
    tests = {}
    for label, bound in TESTS.items():
        day = gpu_day if model == GPUS and bound in ON_THE_GPU else host_day
        common = day + launch * rng.standard_normal((REPEATS, 1))
        rates = 1000 * np.exp(own + common + launch * rng.standard_normal((REPEATS, devices)))
        tests[label] = row(rates, bound)
    return Summary(
        suite="check",
        units="true",
        devices=devices,
        models={str(each): model for each in range(devices)},
        provenance=Provenance(kind="measured", source="made up", hardware=f"{devices} x {model}"),
        has_plan=True,
        tests=tests,
    )


def row(rates: np.ndarray, bound: str) -> TestSummary:
    """Of shape (repeats, devices)."""
    repeats = {str(run): float(each.mean()) for run, each in enumerate(rates)}
    return TestSummary(
        n=rates.size,
        failures=0,
        planned=rates.size,
        train=stat(rates),
        pergpu={str(device): stat(each) for device, each in enumerate(rates.T)},
        launches={f"{run}.{device}": float(rate) for (run, device), rate in np.ndenumerate(rates)},
        repeats=repeats,
        log_perf=session_stat(repeats, {}),
        devices=rates.shape[1],
        tiers=("full",),
        marks=(WINDOW,),
        work=Work(unit="tokens", classic_factor=1.0, bound=bound, precision=("bf16_master",)),
    )


def stat(rates: np.ndarray) -> Stat:
    return Stat(rates.size, float(rates.min()), float(rates.max()), float(rates.mean()), float(rates.std()))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def marked(found: Summary, mark: Mark) -> Summary:
    return replace(found, tests={label: replace(one, marks=(*one.marks, mark)) for label, one in found.tests.items()})


def failing(found: Summary, *jobs: str) -> Summary:
    """With these launches of the first test failed."""
    label, first = next(iter(found.tests.items()))
    failed = tuple(FailedLaunch(job_id=job, cause="crash") for job in jobs)
    return replace(found, tests=found.tests | {label: replace(first, failures=len(jobs), failed=failed)})


TRIALS = 400
SEED = 42


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "devices", "all_by", "seen"),
    [
        (GPUS, 8, 1.0, {"healthy": 398, "slow": 2}),
        (GPUS, 1, 1.0, {"healthy": 400}),
        (CPUS, 2, 1.0, {"healthy": 397, "not decided": 3}),
        (GPUS, 8, 0.9, {"slow": 400}),
        (GPUS, 1, 0.9, {"slow": 399, "not decided": 1}),
        (CPUS, 2, 0.55, {"slow": 399, "not decided": 1}),
    ],
)
def test_how_often_it_is_right(model: str, devices: int, all_by: float, seen: dict[str, int]) -> None:
    """The rates that stand beside the thresholds of `health`: healthy nodes on another day, and slow ones.

    Another library may draw a little otherwise.
    """
    rng = np.random.default_rng(SEED)
    found = Counter(
        health(node(rng, model, devices, all_by=all_by), node(rng, model, devices)).verdict for _ in range(TRIALS)
    )
    for verdict in ("healthy", "slow", "faulty", "not decided"):
        assert abs(found[verdict] - seen.get(verdict, 0)) <= 4, found


@pytest.mark.slow
def test_how_often_one_slow_gpu_of_eight_is_named() -> None:
    rng = np.random.default_rng(SEED)
    found = Counter(
        (made.verdict, made.devices) for _ in range(TRIALS) for made in [health(node(rng, slow={5: 0.92}), node(rng))]
    )
    assert found == {("slow", ("5",)): 400}


def test_a_slow_device_is_named_with_its_tests(rng: np.random.Generator) -> None:
    made = health(node(rng, slow={3: 0.85}), node(rng))
    assert (made.verdict, made.exit_code, made.devices, made.tests) == ("slow", 1, ("3",), ())
    assert any(reason.startswith("device 3 is 1") for reason in made.reasons)
    assert health(node(rng, slow={3: 0.85}), None).verdict == "slow", "that takes no baseline"


def test_a_slow_node_has_its_tests_and_no_device(rng: np.random.Generator) -> None:
    made = health(node(rng, all_by=0.8), node(rng))
    assert (made.verdict, made.devices) == ("slow", ())
    assert set(made.tests) >= {"check.decode", "check.pretrain"}
    assert made.reasons == (f"below 95% of the baseline: {', '.join(made.tests)}",)
    assert made.ratio == pytest.approx(0.8, rel=0.03)


def test_a_slow_link_is_named_although_the_gpus_are_as_fast_as_ever(rng: np.random.Generator) -> None:
    now = node(rng)
    rates = 600 * np.exp(0.005 * rng.standard_normal((REPEATS, 8)))
    made = health(replace(now, tests=now.tests | {"check.h2d": row(rates, "links")}), node(rng))
    assert (made.verdict, made.tests) == ("slow", ("check.h2d",))
    assert made.ratio == pytest.approx(1, rel=0.03)


def test_a_healthy_node(rng: np.random.Generator) -> None:
    made = health(node(rng), node(rng))
    assert (made.verdict, made.exit_code, made.devices, made.tests, made.reasons) == ("healthy", 0, (), (), ())
    assert made.low is not None
    assert made.low > made.least == 0.95
    assert health(node(rng, CPUS, 2), node(rng, CPUS, 2)).least == 0.75
    assert health(node(rng), node(rng), 1.0).verdict == "not decided", "the user may ask for more than can be known"


def test_without_a_baseline_nothing_is_decided(rng: np.random.Generator) -> None:
    made = health(node(rng), None)
    assert (made.verdict, made.exit_code) == ("not decided", 3)
    assert made.reasons == ("there is no baseline of this kind of node: mnb check --store makes one",)


def test_launches_that_fail_are_a_fault_beyond_chance(rng: np.random.Generator) -> None:
    broken = health(failing(node(rng), *(f"{run}.6" for run in range(REPEATS))), node(rng))
    assert (broken.verdict, broken.devices, broken.tests) == ("faulty", ("6",), ("check.decode",))
    assert broken.reasons == ("5 of 120 launches failed (limit 1%)",)
    once = health(failing(node(rng), "2.6"), node(rng))
    assert (once.verdict, once.reasons) == ("not decided", ("check.decode failed on device 6",))
    assert health(failing(node(rng), *(f"{run}.6" for run in range(REPEATS))), None).verdict == "faulty"


def test_a_lost_gpu_is_a_fault(rng: np.random.Generator) -> None:
    made = health(node(rng, devices=7), node(rng))
    assert (made.verdict, made.reasons) == ("faulty", ("the baseline has 8 devices, this node has 7",))


def test_what_others_do_meanwhile_decides_nothing(rng: np.random.Generator) -> None:
    failed = failing(node(rng), *(f"{run}.6" for run in range(REPEATS)))
    on_gpu = Mark(kind="GPU used by others", device="3", what="4711")
    for found in (node(rng), node(rng, all_by=0.8), node(rng, slow={3: 0.8}), failed):
        for mark in (BUSY, on_gpu):
            made = health(marked(found, mark), node(rng))
            assert (made.verdict, made.reasons[0]) == ("not decided", mark.sentence)
    assert health(marked(node(rng, devices=7), BUSY), node(rng)).verdict == "faulty", "nobody else takes a GPU away"
    loose = Mark(kind="partly isolated")
    assert health(marked(node(rng), loose), marked(node(rng), loose)).verdict == "healthy"
    other = health(marked(node(rng), loose), node(rng))
    assert other.reasons == ("check and baseline differ in marks: partly isolated",)


def test_throttled_clocks_are_no_excuse(rng: np.random.Generator) -> None:
    hot = Mark(kind="throttled", what="heat", value=30.0, limit=0.5)
    assert health(marked(node(rng, all_by=0.8), hot), node(rng)).verdict == "slow"


def test_a_baseline_was_whole_and_not_disturbed(rng: np.random.Generator) -> None:
    assert list(why_not_stored(node(rng))) == []
    assert list(why_not_stored(marked(node(rng), BUSY))) == [BUSY.sentence]
    assert list(why_not_stored(failing(node(rng), "2.6"))) == ["check.decode failed on device 6"]
    few = node(rng)
    few = replace(few, tests={label: replace(one, repeats={"0": 1.0}) for label, one in few.tests.items()})
    assert list(why_not_stored(few)) == ["only 1 repeat in the time; a verdict needs at least 5"]

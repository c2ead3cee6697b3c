"""Results that are not what they must be: how they are found in a run, whom a vote blames, what the record says."""

from __future__ import annotations

import dataclasses
import os
import re

import msgspec
import pytest

from milabench_ng.analysis.summary.folder import load
from milabench_ng.model.events import Checked, Failed, Loss, Mismatch, encode
from milabench_ng.records.record import Failure
from milabench_ng.records.verified import MOST_TOLD, Mismatched
from milabench_ng.report.reporting import make_report
from milabench_ng.run.execution.tenant import RankLog
from milabench_ng.run.outcome.failure_cause import LaunchOutcome, judge
from milabench_ng.run.outcome.votes import Ballot, outvoted
from tests.run.conftest import AT_WORK, Finished, Runner
from tests.run.test_causes import GOOD

HERE = "tests.run.stressed"
CHECKED = Checked(unit="TFLOP", values="normal", checks=1204, work=3.0, wrong=0)


@pytest.fixture(scope="module")
def stressed(run_profile: Runner) -> Finished:
    tests = {
        "sound": {"workload": "burn_cpu", "arguments": {"side": 64, "products": 4, "pulse_hz": 20}},
        "transient": {"workload": f"{HERE}:transient"},
        "permanent": {"workload": f"{HERE}:permanent"},
    }
    return run_profile(tests, rule=AT_WORK)


needs_two = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two tenants need two CPUs")


@needs_two
def test_sound_work_is_verified_and_recorded(stressed: Finished) -> None:
    records = stressed.of("sound")
    assert [record.success for record in records] == [True, True]
    assert [record.mnb.paced_by for record in records] == ["pulse_hz", "pulse_hz"]
    assert {record.mnb.paced_by for record in stressed.of("transient")} == {msgspec.UNSET}
    for record in records:
        (rank,) = record.mnb.ranks
        assert rank.verified
        assert (rank.verified.unit, rank.verified.wrong, rank.verified.first) == ("TFLOP", 0, ())
        assert rank.verified.values == "normal (mean 0, variance 1)"
        steps = sum(row.steps for row in rank.slices)
        assert rank.verified.work == pytest.approx(steps * 4 * 2 * 64**3 / 1e12, rel=0.02)
        assert len(set(rank.digests.values())) == 1
    assert len({digest for record in records for digest in record.mnb.ranks[0].digests.values()}) == 1


@needs_two
def test_a_flipped_bit_fails_its_launch_and_names_its_device(stressed: Finished) -> None:
    sound, faulty = sorted(stressed.of("transient"), key=lambda record: record.job_id)
    assert sound.success
    assert faulty.mnb.failure is not None
    assert faulty.mnb.failure.cause == "mismatch"
    told = r"CPU partition 1: 1 of [\d,]+ results is wrong, the first \(product, check 20\) [\d.]+ s after the start"
    assert re.fullmatch(told, faulty.mnb.failure.detail)
    (rank,) = faulty.mnb.ranks
    assert rank.verified
    assert [(one.what, one.check) for one in rank.verified.first] == [("product", 20)]


@needs_two
def test_two_devices_that_disagree_have_both_failed(stressed: Finished) -> None:
    failures = [record.mnb.failure for record in stressed.of("permanent")]
    told = "CPU partition 0, CPU partition 1 disagree on the result of step 1, and no majority says which is wrong"
    assert failures == [Failure(cause="mismatch", detail=told)] * 2


@needs_two
def test_the_report_counts_what_was_verified_and_fails(stressed: Finished) -> None:
    summary = load(stressed.folder)
    assert [summary.tests[f"trial.{name}"].failures for name in ("sound", "transient", "permanent")] == [0, 1, 2]
    report = make_report(stressed.folder)
    assert report.exit_code == 1
    assert report.mismatches == 3
    assert {test for test, failed in report.failed if failed.cause == "mismatch"} == {
        "trial.transient",
        "trial.permanent",
    }


def ballots(*results: str, alike: str = "H200") -> list[Ballot]:
    return [
        Ballot(job_id=f"0.{number}", device=f"GPU {number}", alike=alike, digests=dict(enumerate_steps(digests)))
        for number, digests in enumerate(results)
    ]


def enumerate_steps(digests: str) -> list[tuple[str, str]]:
    """Steps 1, 2 and 10, one letter each."""
    return list(zip(("1", "2", "10"), digests, strict=False))


def test_a_majority_outvotes_the_others() -> None:
    assert outvoted(ballots("aaa", "aaa", "aaa")) == {}
    assert outvoted(ballots("aaa", "aba", "aaa")) == {
        "0.1": "GPU 1: its result of step 2 is not that of the 2 other devices that agree"
    }
    assert set(outvoted(ballots("bbb", "aaa", "ccc", "aaa", "aaa"))) == {"0.0", "0.2"}


def test_without_a_majority_all_that_disagree_have_failed() -> None:
    assert set(outvoted(ballots("a", "b"))) == {"0.0", "0.1"}
    assert set(outvoted(ballots("a", "a", "b", "b"))) == {"0.0", "0.1", "0.2", "0.3"}


def test_only_equal_work_on_equal_devices_votes() -> None:
    other = [msgspec.structs.replace(one, job_id=f"1.{at}", alike="L4") for at, one in enumerate(ballots("zzz", "zzz"))]
    assert outvoted([*ballots("aaa", "aaa"), *other]) == {}
    assert outvoted(ballots("aaa", "", "a")) == {}  # one that told nothing, and one that ended early


def log(checked: Checked, *mismatches: Mismatched) -> RankLog:
    return dataclasses.replace(RankLog(), checked=checked, mismatches=list(mismatches))


def outcome(**changes: object) -> LaunchOutcome:
    names = ("GPU 3 (NVIDIA H200, GPU-1)", "GPU 4 (NVIDIA H200, GPU-2)")
    return msgspec.structs.replace(GOOD, **{"device_names": names, "start_s": 100.0, **changes})


def test_a_mismatch_is_told_with_device_test_and_time() -> None:
    wrong = msgspec.structs.replace(CHECKED, wrong=2)
    ranks = [log(CHECKED), log(wrong, Mismatched("memory", 12, 134.2), Mismatched("memory", 13, 140.0))]
    found = judge(outcome(), ranks, {}, {})
    told = "2 of 1,204 results are wrong, the first (memory, check 12) 34.2 s after the start"
    assert found == Failure(cause="mismatch", detail=f"GPU 4 (NVIDIA H200, GPU-2): {told}")


def test_a_worker_that_raised_for_a_wrong_result_is_told_with_its_device() -> None:
    raised = Failed(rank=1, kind="mismatch", message="WrongResultError: 1 of 8 bytes came back", traceback="")
    found = judge(outcome(failures=(raised,)), [RankLog(), RankLog()], {}, {})
    told = "GPU 4 (NVIDIA H200, GPU-2): WrongResultError: 1 of 8 bytes came back"
    assert found == Failure(cause="mismatch", detail=told)


def test_a_mismatch_stays_one_however_the_launch_ends() -> None:
    """An interrupted launch is tried again: what it had found must not be forgotten."""
    ranks = [log(msgspec.structs.replace(CHECKED, wrong=1))]
    for end in ({"interrupted": True}, {"timed_out": "no slice for 120 s"}):
        found = judge(outcome(**end), ranks, {}, {})
        assert found is not None
        assert found.cause == "mismatch"


def test_events_of_checks_are_short_lines() -> None:
    """Below 4,096 bytes, as all lines of a worker must be."""
    assert len(encode(CHECKED)) < 200
    assert len(encode(Mismatch(what="product", check=10**15, time_s=1e9))) < 200
    assert MOST_TOLD * len(encode(Loss(step=1, value=1.0))) < 4096

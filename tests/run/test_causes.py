"""Each cause of a failure, provoked for real where a machine without GPUs can, and told from its neighbours."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

from milabench_ng.fence.entry import EXIT_REFUSED
from milabench_ng.model.events import Ready
from milabench_ng.model.units import GIB
from milabench_ng.records.isolation import GroupEvents, ProcView, Usage
from milabench_ng.records.record import Failure
from milabench_ng.records.window import SliceRow, Window
from milabench_ng.run.events.run_events import AnyRunEvent, LaunchState, Slices
from milabench_ng.run.execution.group_evidence import GroupEvidence
from milabench_ng.run.execution.tenant import RankLog
from milabench_ng.run.outcome.failure_cause import LaunchOutcome, judge
from tests.run.conftest import AT_WORK, BROKEN, Finished, Runner
from tests.run.processes import own_files, process_tree

GOOD = LaunchOutcome(
    exit_status=0,
    full=True,
    window=Window(start_s=0, end_s=1),
    timed_out=None,
    interrupted=False,
    device=None,
    broken_protocol="",
    failures=(),
)


EVENTS = {
    "rank": '{"event": "Loss", "rank": 99, "step": 1, "value": 1.0}',
    "huge": f'{{"event": "Slice", "start_s": 1.0, "length_s": 0.5, "count": {10**30}, "steps": 1, "wait_s": 0.0}}',
}


@pytest.fixture(scope="module")
def failing(run_profile: Runner) -> Finished:
    """Launches that go wrong by themselves, one after the other in one run; and some that do not."""
    tests = {
        "nan": {"workload": f"{BROKEN}:not_a_number"},
        "raises": {"workload": f"{BROKEN}:raises"},
        "short": {"workload": f"{BROKEN}:slow", "arguments": {"max_seconds": 3.0}},
        "unsettled": {"workload": f"{BROKEN}:tunes", "arguments": {"max_seconds": 3.5}},
        "steady": {"workload": f"{BROKEN}:steady"},
        "exits": {"workload": f"{BROKEN}:exits"},
        "deaf": {"workload": f"{BROKEN}:goes_deaf"},
        "speechless": {"workload": f"{BROKEN}:speechless"},
        "fp32": {"workload": f"{BROKEN}:recovers"},
        "amp": {"workload": f"{BROKEN}:recovers", "arguments": {"precision": "amp"}},
        **{name: {"workload": f"{BROKEN}:says", "arguments": {"event": event}} for name, event in EVENTS.items()},
    }
    return run_profile(tests, tenants=1, rule=AT_WORK)


def failure(finished: Finished, test: str) -> Failure | None:
    """Of the only launch of a test."""
    (record,) = finished.of(test)
    return record.mnb.failure


def cause(finished: Finished, test: str) -> str | None:
    """Of its failure."""
    found = failure(finished, test)
    return None if found is None else found.cause


def test_causes_of_failures_are_told_apart(failing: Finished) -> None:
    causes = {test: cause(failing, test) for test in ("nan", "raises", "short", "unsettled", "steady")}
    assert causes == {"nan": "nan", "raises": "exception", "short": "short", "unsettled": "short", "steady": None}
    (raised,) = failing.of("raises")
    assert raised.error is not None
    assert "the planned accident" in raised.error
    assert "broken.py" in raised.error
    assert len(raised.mnb.ranks[0].slices) >= 1
    (steady,) = failing.of("steady")
    assert steady.mnb.source.origin == f"{BROKEN}:steady"
    assert len(steady.mnb.source.sha256) == 64


def test_ends_without_a_word_and_losses_that_recover(failing: Finished) -> None:
    assert failure(failing, "exits") == Failure(cause="exit", detail="exit status 7")
    assert cause(failing, "fp32") == "nan"
    assert failure(failing, "amp") is None, "fp16 with a loss scale skips such steps"


def test_a_worker_that_closes_its_descriptor_for_events_is_named(failing: Finished) -> None:
    detail = "the worker closed its event pipe (descriptor 4) but kept running"
    assert failure(failing, "deaf") == Failure(cause="exit", detail=detail)


def test_an_exception_that_cannot_be_told_is_one_all_the_same(failing: Finished) -> None:
    raised = failure(failing, "speechless")
    assert raised is not None
    assert (raised.cause, raised.detail) == (
        "exception",
        "SpeechlessError: the error message could not be read: KeyError",
    )
    assert "broken.py" in (raised.traceback or "")


def test_events_out_of_range_are_the_cause(failing: Finished) -> None:
    """They end a launch with a clear cause, and no other; test_events_in_records has many more."""
    start = "the worker wrote something that is no event: "
    details = {
        "rank": "rank 99 of 1",
        "huge": "Expected `int` <= 1000000000000000 - at `$.count`",
    }
    expected = {test: Failure(cause="exit", detail=f"{start}{detail}") for test, detail in details.items()}
    assert {test: failure(failing, test) for test in EVENTS} == expected


def test_memory_above_the_share(run_profile) -> None:  # type: ignore[no-untyped-def]
    endless = {"workload": f"{BROKEN}:hog", "arguments": {"max_count": 1_000_000}}
    finished = run_profile({"hog": endless}, tenants=1, ram_total_bytes=6 * GIB)
    if finished.outcome.tier != "full":
        pytest.skip(f"the fence is {finished.outcome.tier} here")
    (hog,) = finished.records
    assert hog.mnb.failure.cause == "oom"
    assert "limit" in hog.mnb.failure.detail


def test_a_limit_that_is_changed_during_the_run_is_noticed(run_profile) -> None:  # type: ignore[no-untyped-def]
    def act(event: AnyRunEvent) -> None:
        if not isinstance(event, LaunchState) or event.state != "working":
            return
        for limit in ("memory.limit_in_bytes", "memory.max"):
            for file in own_files(f"*/{limit}"):
                file.write_text(str(4 * GIB))

    finished = run_profile({"steady": {"workload": f"{BROKEN}:steady"}}, act, tenants=1, rule=AT_WORK)
    if finished.outcome.tier != "full":
        pytest.skip(f"the fence is {finished.outcome.tier} here")
    (record,) = finished.records
    assert record.mnb.failure.cause == "isolation_lost"
    assert "memory_bytes was" in record.mnb.failure.detail


class Spoil:
    """Damages all pictures of a dataset, or removes them, before the first batch is read."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, event: AnyRunEvent) -> None:
        if not isinstance(event, LaunchState) or event.state != "starting":
            return
        for path in self.root.rglob("train/*/*.*"):
            if event.label == "trial.missing":
                path.unlink()
            else:
                path.write_bytes(os.urandom(path.stat().st_size))


def test_files_that_cannot_be_read(run_profile, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    test = {"workload": "loader", "data_scale": 0.0005, "arguments": {"batch_size": 4, "workers": 1}}
    finished = run_profile({"damaged": test, "missing": test}, Spoil(tmp_path), tenants=1, dataroot=tmp_path)
    assert [record.name for record in finished.records] == ["trial.damaged", "trial.missing"]
    for record in finished.records:
        assert record.mnb.failure.cause == "data_error"
        assert str(tmp_path) in record.mnb.failure.detail
        assert "mnb prepare" in record.mnb.failure.detail
        assert "Traceback" in record.error


class KillLoader:
    """Kills a loader process of the first tenant."""

    pid = 0
    done = False

    def __call__(self, event: AnyRunEvent) -> None:
        if isinstance(event, LaunchState) and event.pid:
            self.pid = event.pid
        if isinstance(event, Slices) and event.slices[0] >= 2 and not self.done:
            self.done = True
            _, loader = process_tree(self.pid)
            os.kill(loader, signal.SIGKILL)


def test_a_killed_loader_is_named_with_its_signal(run_profile) -> None:  # type: ignore[no-untyped-def]
    loader = {"workload": "loader", "arguments": {"batch_size": 16, "workers": 1}}
    finished = run_profile({"loader": loader}, KillLoader(), tenants=1, rule=AT_WORK)
    (record,) = finished.records
    assert record.mnb.failure.cause == "signal", record.mnb.failure
    assert "Killed" in record.mnb.failure.detail
    assert "DataLoader worker" in record.mnb.failure.detail


def test_a_failure_before_the_interruption_keeps_its_own_cause(run_profile) -> None:  # type: ignore[no-untyped-def]
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs for two tenants")

    pids: dict[str, int] = {}

    def act(event: AnyRunEvent) -> None:
        if isinstance(event, LaunchState) and event.state == "working":
            pids[event.job_id] = event.rank_pids[0]
        elif isinstance(event, Slices) and event.job_id == "0.0" and "0.0" in pids:
            os.kill(pids.pop("0.0"), signal.SIGKILL)
        elif isinstance(event, LaunchState) and (event.job_id, event.state) == ("0.0", "ended"):
            os.kill(os.getpid(), signal.SIGTERM)

    finished = run_profile({"steady": {"workload": f"{BROKEN}:steady"}}, act, rule=AT_WORK)
    assert [record.mnb.failure.cause for record in finished.records] == ["signal", "interrupted"]


def test_a_worker_that_the_stop_made_full_was_interrupted() -> None:
    """The slice under way at the stop is in no window, and the launch is measured again."""
    late = judge(msgspec.structs.replace(GOOD, interrupted=True, window=None), [], {}, {})
    assert late is not None
    assert late.cause == "interrupted"
    assert judge(msgspec.structs.replace(GOOD, interrupted=True), [], {}, {}) is None


def test_a_device_fault_comes_before_what_the_worker_says_of_it() -> None:
    device = Failure(cause="device_lost", detail="GPU-1: XID 79")
    outcome = msgspec.structs.replace(GOOD, exit_status=-signal.SIGKILL, device=device, timed_out="no slice")
    assert judge(outcome, [], {}, {}) == device
    late = msgspec.structs.replace(outcome, device=None)
    assert judge(late, [], {}, {}) == Failure(cause="timeout", detail="no slice")


def test_a_worker_that_could_not_enter_is_told_from_one_that_ends_in_the_same_way() -> None:
    outcome = msgspec.structs.replace(GOOD, exit_status=EXIT_REFUSED, window=None)
    found = judge(outcome, [], {"0": GroupEvidence()}, {"0": GIB})
    assert found == Failure(cause="isolation_lost", detail="it could not enter its isolation. See its log")
    entered = GroupEvidence(
        proc=ProcView(pid=1, groups=(), cpus_allowed=(), mems_allowed=(), threads=1, open_fds={}),
        before=GroupEvents(),
        after=GroupEvents(),
        usage=Usage(),
    )
    assert judge(outcome, [], {"0": entered}, {"0": GIB}) == Failure(cause="exit", detail="exit status 125")


@pytest.mark.parametrize(
    ("losses", "skips", "expected"),
    [
        ({"1": 1.0, "57": None}, False, "nan"),
        ({"1": 1.0, "57": None, "70": 0.9}, False, "nan"),
        ({"1": 1.0, "57": None, "70": 0.9}, True, None),
        ({"1": 1.0, "57": None, "70": 0.9, "90": None}, True, "nan"),
        ({"1": 1.0, "10": 0.5}, True, None),
    ],
)
def test_losses_that_are_not_finite(losses: dict[str, float | None], skips: bool, expected: str | None) -> None:
    ready = Ready(time_s=0, precision="amp", ran="amp", matmul_error=0, skips=skips)
    rank = RankLog(ready=ready, losses=losses, slices=[SliceRow(0, 1, 20, 20, 0)])
    found = judge(GOOD, [rank], {}, {})
    assert (found and found.cause) == expected

"""Automatic batch sizes, in real fences: tenants that fill their RAM until the kernel or the fraction refuses."""

from __future__ import annotations

import os
import signal

import msgspec
import pytest

from milabench_ng.model.units import GIB, MIB
from milabench_ng.records.batch_search import BatchSearch
from milabench_ng.run.events.run_events import AnyRunEvent, BatchBegins
from tests.run.conftest import Finished, Runner

GROWING = "tests.run.growing:growing"
RAM = 10 * GIB + GIB // 2
"""Two tenants: about 4 GiB each, the least that a share may have."""
RAM_OF_ONE = 6 * GIB
"""One tenant: a little over the 4 GiB."""
FRACTION = 0.225
"""Of that, so that a search touches one GiB and not four."""


def only_search(finished: Finished, test: str = "t") -> BatchSearch:
    """The search that the records of a test's first batch tell of."""
    records = finished.of(test)
    searches = [record.mnb.batch_search for record in records if record.mnb.batch == records[0].mnb.batch]
    assert all(search == searches[0] for search in searches)
    assert searches[0] is not msgspec.UNSET
    return searches[0]


@pytest.fixture(scope="module")
def twice(run_profile: Runner) -> Finished:
    """Two runs of a test, of whose pieces seven fit in the part of a share that is allowed, and eight do not."""
    arguments = {"batch_size": "auto", "mib": 128}
    test = {"workload": GROWING, "arguments": arguments, "memory_fraction": FRACTION}
    return run_profile({"t": test}, repeat=2, ram_total_bytes=RAM)


def test_the_largest_size_below_the_fraction_is_found(twice: Finished) -> None:
    search = only_search(twice)
    limits = set(search.limit_bytes.values())
    assert twice.outcome.failed == 0
    assert limits == {int(FRACTION * share.memory_bytes) for share in twice.manifest.shares.values()}
    assert search.size == 6
    assert all("in use, " in why for trial in search.trials for why in trial.unfit.values())
    assert search.tried == {1: True, 2: True, 4: True, 8: False, 6: True}
    assert search.follows
    for trial in search.trials:
        assert trial.seconds > 0
        for slot, peak in trial.peak_bytes.items():
            assert (slot in trial.unfit) or peak is not None
            assert peak is None or 0.95 * trial.size * 128 * MIB <= peak <= trial.size * 128 * MIB + 700 * MIB


def test_all_launches_have_the_size_and_say_how_it_was_found(twice: Finished) -> None:
    search = only_search(twice)
    assert {record.call.arguments["batch_size"] for record in twice.records} == {search.size}
    assert {record.mnb.launch.arguments["batch_size"] for record in twice.records} == {search.size}
    assert {launch.arguments["batch_size"] for launch in twice.manifest.plan.launches} == {"auto"}
    marks = {mark.text for record in twice.records for mark in record.mnb.marks}
    assert f"batch size found by trial: {search.size}" in marks


def test_it_is_searched_once_and_reused_by_the_second_run(twice: Finished) -> None:
    first = [record for record in twice.records if record.mnb.batch == 0]
    second = [record for record in twice.records if record.mnb.batch == 1]
    again = second[0].mnb.batch_search
    assert again == msgspec.structs.replace(only_search(twice), reused=True)
    assert all(record.mnb.phases_s["batch size"] == only_search(twice).seconds for record in first)
    assert all("batch size" not in record.mnb.phases_s for record in second)
    assert [note for note in twice.notes if "batch size" in note and "fits" in note]


def test_the_kernel_refuses_what_no_fraction_forbids(run_profile: Runner) -> None:
    """With the whole share allowed, the trial that is too large is killed, and the launch lives."""
    test = {"workload": GROWING, "arguments": {"batch_size": "auto", "mib": 2300}, "memory_fraction": 1.0}
    finished = run_profile({"t": test}, tenants=1, ram_total_bytes=RAM_OF_ONE)
    search = only_search(finished)
    assert finished.outcome.failed == 0
    killed = [why for trial in search.trials for why in trial.unfit.values() if why.startswith("oom: ")]
    assert killed
    assert any(None in trial.peak_bytes.values() for trial in search.trials)


def test_a_resumed_run_with_other_memory_searches_again(run_profile: Runner, resume_run: Runner) -> None:
    test = {"workload": GROWING, "arguments": {"batch_size": "auto", "mib": 1, "wrong_from": 2}}
    finished = run_profile({"t": test}, tenants=1, repeat=2, ram_total_bytes=RAM)
    (lost,) = (record for record in finished.records if record.mnb.batch == 1)
    (path,) = finished.folder.glob(f"trial.t.J{lost.job_id}.*.json")
    path.unlink()
    accept = ("node", "isolation")
    again = resume_run(finished.folder, accept=accept, ram_total_bytes=RAM + 2 * GIB)
    (found,) = (record.mnb.batch_search for record in again.records if record.mnb.batch == 1)
    assert found.size == only_search(finished).size == 1
    assert not found.reused
    assert found.limit_bytes["0"] > only_search(finished).limit_bytes["0"]


@pytest.fixture(scope="module")
def each(run_profile: Runner) -> Finished:
    """Tests whose searches end in different ways, one after the other in one run."""
    auto = {"batch_size": "auto"}
    tests: dict[str, object] = {
        "refuses": {"workload": GROWING, "arguments": {**auto, "mib": 1, "wrong_from": 5}},
        "too_large": {"workload": GROWING, "arguments": {**auto, "mib": 600}, "memory_fraction": 0.1},
        "ends": {"workload": "tests.run.growing:ends", "arguments": auto},
        "ranks": {
            "workload": "tests.run.growing:growing_ranks",
            "arguments": {**auto, "mib": 600},
            "partition_scheme": {"type": "normal"},
            "memory_fraction": FRACTION,
        },
    }
    return run_profile(tests, ram_total_bytes=RAM)


def test_a_size_that_the_workload_refuses_is_too_large(each: Finished) -> None:
    search = only_search(each, "refuses")
    assert all(record.success for record in each.of("refuses"))
    assert search.size == 4
    assert search.tried == {1: True, 2: True, 4: True, 8: False, 6: False}
    told = {why for trial in search.trials for why in trial.unfit.values()}
    assert told == {f"exception: ValueError: a batch of {size} is more than there is" for size in (6, 8)}


def test_a_launch_for_which_not_even_the_smallest_size_fits_fails_with_the_cause(each: Finished) -> None:
    for record in each.of("too_large"):
        assert record.mnb.failure is not None
        assert record.mnb.failure.cause == "oom"
        assert record.mnb.failure.detail.startswith("batch size 1, tried on 0: 6")
        assert record.mnb.launch.arguments["batch_size"] == "auto"
    assert only_search(each, "too_large").size is None


def test_a_workload_that_fails_with_any_size_fails_with_its_own_words(each: Finished) -> None:
    for record in each.of("ends"):
        assert record.mnb.failure is not None
        assert record.mnb.failure.cause == "exception"
        assert "RuntimeError: the planned accident" in record.mnb.failure.detail
    assert list(each.folder.glob("logs/trial.ends.batch-size-1.J0.0.log"))


def test_ranks_have_one_size(each: Finished) -> None:
    search = only_search(each, "ranks")
    assert all(record.success for record in each.of("ranks"))
    assert search.size == 1
    assert {slot for trial in search.trials for slot in trial.peak_bytes} == {"0", "1"}


def test_an_interrupted_search_leaves_nothing_and_a_resumed_run_searches_again(
    run_profile: Runner, resume_run: Runner
) -> None:
    test = {"workload": GROWING, "arguments": {"batch_size": "auto", "mib": 1, "wrong_from": 3}}

    def interrupt(event: AnyRunEvent) -> None:
        if isinstance(event, BatchBegins):
            os.kill(os.getpid(), signal.SIGINT)

    finished = run_profile({"t": test}, interrupt, tenants=1, ram_total_bytes=RAM)
    assert finished.outcome.interrupted
    assert finished.records == []
    again = resume_run(finished.folder)
    assert again.outcome.failed == 0
    assert only_search(again).size == 2

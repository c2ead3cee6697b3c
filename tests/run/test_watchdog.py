"""When a launch is late, worked out by hand."""

from __future__ import annotations

import msgspec
import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import TimeLimits
from milabench_ng.records.window import WindowRule
from milabench_ng.run.execution.watchdog import LaunchProgress, Limits, Pause, limits_for, overdue, pauses

RULE = WindowRule(settle_s=2.0, length_s=9.0, margin_s=1.0)
LIMITS = Limits(ready_s=30, silence_s=20, end_s=10, total_s=200)
ASKED = LaunchProgress(asked_s=1000, ready=False, start_s=None, stop_s=None, heard_s=1000, longest_slice_s=0)
WORKING = msgspec.structs.replace(ASKED, ready=True, start_s=1010, heard_s=1005)
STOPPED = msgspec.structs.replace(WORKING, stop_s=1100, heard_s=1100, longest_slice_s=0.5)


@pytest.mark.parametrize(
    ("progress", "in_time", "late", "words"),
    [
        (ASKED, 1030, 1030.1, "not ready 30 s after it was requested"),
        (WORKING, 1030, 1030.1, "no slice for 20 s"),
        (msgspec.structs.replace(WORKING, heard_s=1015), 1035, 1035.1, "no slice for 20 s"),
        (STOPPED, 1118, 1118.1, "still running 18 s after the stop"),
        (msgspec.structs.replace(WORKING, heard_s=1199), 1200, 1200.1, "still running 200 s after it was requested"),
    ],
)
def test_each_limit_bites_when_it_is_over(progress: LaunchProgress, in_time: float, late: float, words: str) -> None:
    assert overdue(progress, LIMITS, in_time) is None
    assert overdue(progress, LIMITS, late) == words


def test_one_that_is_ready_waits_for_the_others_without_a_limit_of_its_own() -> None:
    waiting = msgspec.structs.replace(ASKED, ready=True)
    assert overdue(waiting, LIMITS, 1150) is None


@pytest.mark.parametrize(
    ("progress", "now"),
    [(ASKED, 1030), (WORKING, 1030), (STOPPED, 1118), (msgspec.structs.replace(WORKING, heard_s=1190), 1200)],
)
def test_a_pause_of_the_orchestrator_counts_for_no_limit(progress: LaunchProgress, now: float) -> None:
    paused = msgspec.structs.replace(progress, pauses=(Pause(now - 1, 40.0),))
    assert overdue(paused, LIMITS, now + 40 - 0.1) is None
    assert overdue(paused, LIMITS, now + 40.1) is not None


def test_a_pause_before_the_last_slice_gives_no_more_time() -> None:
    heard = msgspec.structs.replace(WORKING, heard_s=1100, pauses=(Pause(1050, 40.0),))
    assert overdue(heard, LIMITS, 1120) is None
    assert overdue(heard, LIMITS, 1120.1) == "no slice for 20 s"


def test_what_is_a_little_late_did_not_stand_still() -> None:
    assert pauses(100.0, 101.0) == ()
    assert pauses(100.0, 101.5) == (Pause(101.5, 1.5),)


def test_limits_follow_from_the_plan() -> None:
    plain = limits_for("s.a", {"max_seconds": 600.0, "sample_duration": 0.5}, RULE, "warm", TimeLimits())
    assert plain == Limits(ready_s=300, silence_s=120, end_s=60, total_s=300 + 600 + 120 + 60)
    slow = limits_for("s.a", {"max_seconds": 60.0, "sample_duration": 30.0}, RULE, "cold", TimeLimits())
    assert slow == Limits(ready_s=480, silence_s=300, end_s=60, total_s=480 + 60 + 300 + 60)
    asked = limits_for("s.a", {"max_seconds": 600.0}, RULE, "warm", TimeLimits(ready=5, silence=6, end=7, total=80))
    assert asked == Limits(ready_s=5, silence_s=6, end_s=7, total_s=80)


def test_a_total_that_leaves_no_time_for_the_work_is_refused() -> None:
    with pytest.raises(InputError, match=r"s\.a: its total time limit of 12 s is shorter than its work of 12 s"):
        limits_for("s.a", {"max_seconds": 600.0}, RULE, "warm", TimeLimits(total=12))

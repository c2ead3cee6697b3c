"""Steps that a loss scale skips: counted, and told where they are many."""

from __future__ import annotations

import pytest

from milabench_ng.model.events import Skips
from milabench_ng.records.marks import Mark
from milabench_ng.records.record import Skipped
from milabench_ng.records.window import SliceRow, WindowRule
from milabench_ng.run.execution.tenant import RankLog
from milabench_ng.run.outcome.skipped import skipped
from tests.run.conftest import AT_WORK, BROKEN

RULE = WindowRule(settle_s=2.0)


def log(*told: tuple[int, int]) -> RankLog:
    """Slices of a second from 100 s on; steps and skipped steps so far, after each."""
    rank = RankLog(slices=[SliceRow(100.0 + at, 1.0, 10, 10, 0.0) for at in range(5)])
    rank.skips = [Skips(steps=steps, skipped=skips) for steps, skips in told]
    return rank


def test_steps_of_the_slices_that_begin_after_settling_are_told_apart() -> None:
    """Slices begin at 100 to 104 s, so the third is the first settled one; the last word comes after the last slice."""
    told = log((10, 6), (20, 7), (30, 7), (40, 8), (50, 9), (53, 9))
    assert skipped(told, 100.0, RULE) == Skipped(steps=53, skipped=9, settled_steps=33, settled_skipped=2)


def test_a_rank_that_was_killed_or_never_began() -> None:
    assert skipped(log((10, 6)), 100.0, RULE) == Skipped(steps=10, skipped=6, settled_steps=0, settled_skipped=0)
    assert skipped(log(), 100.0, RULE) is None  # a mode that skips none
    assert skipped(log((10, 6)), None, RULE) is None


@pytest.mark.parametrize(
    ("steps", "skips", "share"), [(200, 2, None), (200, 3, 0.015), (0, 0, None), (50, 1, 0.02), (0, 1, 1.0)]
)
def test_more_than_one_in_a_hundred_is_too_many(steps: int, skips: int, share: float | None) -> None:
    found = Skipped(steps=1000, skipped=900, settled_steps=steps, settled_skipped=skips)
    assert found.too_many == share


def test_records_hold_what_the_loss_scale_skipped(run_profile) -> None:  # type: ignore[no-untyped-def]
    """Every third step is skipped: of n steps n // 3, whenever the rank has settled."""
    finished = run_profile(
        {
            "often": {"workload": f"{BROKEN}:overflows", "arguments": {"every": 3}},
            "never": {"workload": f"{BROKEN}:overflows", "arguments": {"every": 1_000_000}},
            "fp32": {"workload": f"{BROKEN}:steady"},
        },
        tenants=1,
        rule=AT_WORK,
    )
    ranks = {record.name: record.mnb.ranks[0].skipped for record in finished.records}
    often, never = ranks["trial.often"], ranks["trial.never"]
    unsettled = often.steps - often.settled_steps
    assert often.skipped == often.steps // 3
    assert often.settled_skipped == often.steps // 3 - unsettled // 3
    assert unsettled > 0
    assert (never.skipped, never.settled_skipped) == (0, 0)
    assert never.settled_steps > 0
    assert ranks["trial.fp32"] is None
    marks = {
        record.name: [mark for mark in record.mnb.marks if mark.kind == "steps skipped"] for record in finished.records
    }
    share = often.settled_skipped / often.settled_steps
    assert marks["trial.often"] == [Mark(kind="steps skipped", device="0", value=share, limit=0.01)]
    assert marks["trial.never"] == marks["trial.fp32"] == []

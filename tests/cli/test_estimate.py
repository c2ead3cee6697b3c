"""The duration that a dry run prints, by hand."""

from __future__ import annotations

import pytest

from milabench_ng.model.plan import Batch, Device, Launch, Plan
from milabench_ng.records.window import WindowRule
from milabench_ng.run.execution.pacing import EDGE_S
from milabench_ng.run.execution.watchdog import START_S, least_work_s
from milabench_ng.run.planning.duration import SERVER_S, least_duration

RULE = WindowRule(settle_s=2.0, length_s=9.0, margin_s=1.0)


def batch(number: int, max_seconds: float) -> Batch:
    launches = tuple(
        Launch(
            test="quick.vae",
            scheme="per-gpu",
            workload="vae",
            arguments={"max_seconds": max_seconds},
            run=0,
            devices=(device,),
        )
        for device in (0, 1)
    )
    return Batch(number=number, launches=launches)


@pytest.mark.parametrize(("max_seconds", "expected"), [(600.0, 12.0), (12.0, 12.0), (5.0, 5.0)])
def test_a_batch_takes_a_whole_window_unless_it_is_ended_earlier(max_seconds: float, expected: float) -> None:
    assert least_work_s(batch(0, max_seconds).launches[0].arguments, RULE) == expected


def test_a_plan_takes_its_batches_and_the_allowances() -> None:
    devices = (Device(index=0, kind="cpu"), Device(index=1, kind="cpu"))
    plan = Plan(suite="quick", devices=devices, repeat=1, batches=(batch(0, 600.0), batch(1, 600.0), batch(2, 4.0)))
    duration = least_duration(plan, RULE, "cold")
    assert duration.work_s == 28.0
    assert duration.start_s == SERVER_S + 3 * (START_S["cold"] + 2 * EDGE_S)
    assert duration.total_s == duration.work_s + duration.start_s

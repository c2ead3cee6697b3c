"""Events that cannot be end a launch with a clear cause, and no other."""

from __future__ import annotations

HERE = "tests.orchestrator.broken"
EVENTS = {
    "rank": '{"event": "Loss", "rank": 99, "step": 1, "value": 1.0}',
    "negative": '{"event": "Loss", "rank": -1, "step": 1, "value": 1.0}',
    "empty": '{"event": "Slice", "start_s": 1.0, "length_s": 0.0, "count": 1, "steps": 1, "wait_s": 0.0}',
    "tiny": '{"event": "Slice", "start_s": 1.0, "length_s": 5e-324, "count": 1, "steps": 1, "wait_s": 0.0}',
    "count": '{"event": "Slice", "start_s": 1.0, "length_s": 0.5, "count": -1, "steps": 1, "wait_s": 0.0}',
}


def test_events_out_of_range_are_the_cause(run_profile) -> None:  # type: ignore[no-untyped-def]
    tests = {name: {"workload": f"{HERE}:says", "arguments": {"event": event}} for name, event in EVENTS.items()}
    finished = run_profile(tests, tenants=1)
    details = {record.name: (record.mnb.failure.cause, record.mnb.failure.detail) for record in finished.records}
    start = "the worker wrote something that is no event: "
    assert details == {
        "trial.rank": ("exit", f"{start}rank 99 of 1"),
        "trial.negative": ("exit", f"{start}Expected `int` >= 0 - at `$.rank`"),
        "trial.empty": ("exit", f"{start}Expected `float` >= 1e-06 - at `$.length_s`"),
        "trial.tiny": ("exit", f"{start}Expected `float` >= 1e-06 - at `$.length_s`"),
        "trial.count": ("exit", f"{start}Expected `int` >= 0 - at `$.count`"),
    }

"""What is told about a batch keeps its order, whatever the event loop does first."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from milabench_ng.run.events.run_events import AnyRunEvent, LaunchState
from milabench_ng.run.execution.announcing import Announcer


def tenant(loop: asyncio.AbstractEventLoop) -> Any:
    """As much of a `Tenant` as states are told of."""
    futures = {name: loop.create_future() for name in ("ready", "full", "ended")}
    return SimpleNamespace(launch=SimpleNamespace(job_id="J0.0", label="a"), ranks=(), pid=1, **futures)


def test_a_tenant_is_ready_before_it_works_and_once() -> None:
    told: list[AnyRunEvent] = []

    async def begin() -> None:
        one = tenant(asyncio.get_running_loop())
        announcer = Announcer(1, [one], told.append)
        one.ready.set_result(None)
        announcer.reached(one, "working")  # in the same turn of the loop: the callback of `ready` is still due
        await asyncio.sleep(0)
        one.ended.set_result(None)
        await asyncio.sleep(0)

    asyncio.run(begin())
    assert [event.state for event in told if isinstance(event, LaunchState)] == ["ready", "working", "ended"]

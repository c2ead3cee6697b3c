"""What is accepted from a worker can be read back: whatever is an event makes a record that is one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milabench_ng.model.catalogue import Catalogue, Workload
from milabench_ng.model.events import AnyEvent, Lines
from milabench_ng.records.reading import ReadRecord, read_record
from milabench_ng.records.record import Failure, Record, encode_record
from milabench_ng.run.outcome.observation import SessionFacts
from milabench_ng.run.outcome.recording import make_record
from tests.run.test_marking import facts, seen
from tests.run.test_waiting import tenant_of

WHOLE = (0, 1, 2, 10**12, 10**15, 10**15 + 1, 2**53, 2**62, 2**63, 2**64, 10**30)
ODD = (*WHOLE, *(-number for number in WHOLE), *map(float, WHOLE), 0.5, 5e-324, 1.7e308, -1e300, None, "", "odd", True)
"""What a field may be given, one at a time, so that it is no other that is refused."""
EVENTS: dict[str, dict[str, Any]] = {
    "Entered": {"rank": 0, "pid": 12, "torch_threads": 1},
    "Phase": {"name": "build", "seconds": 0.5},
    "Ready": {
        "time_s": 1.0,
        "precision": "fp32",
        "dtypes": {"float32": 9},
        "parameters": 9,
        "ran": "fp32",
        "matmul_error": 0.1,
        "skips": False,
    },
    "Slice": {
        "start_s": 1.0,
        "length_s": 0.5,
        "count": 7,
        "steps": 7,
        "wait_s": 0.1,
        "backlog": 3,
        "latency": [[5, 7]],
        "notes": {"forward_s": 0.1},
        "item_latency": {"TTFT": [[5, 3]]},
    },
    "Loss": {"step": 1, "value": 0.5},
    "GradientNorm": {"step": 1, "value": 0.5},
    "Skips": {"steps": 9, "skipped": 1},
    "Digest": {"step": 1, "sha256": "ab"},
    "Full": {"time_s": 9.0, "count": 7},
    "Done": {
        "time_s": 9.0,
        "count": 7,
        "steps": 7,
        "ran": "fp32",
        "matmul_error": 0.1,
        "layer_dtype": "float32",
        "kernels": {"attention": "math"},
        "peak_device_bytes": 7,
        "read_bytes": 7,
        "read_s": 0.5,
    },
    "Peak": {"bytes": 7},
    "Failed": {"kind": "exception", "message": "m", "traceback": "t"},
}


def facts_of_a_workload() -> SessionFacts:
    """A run whose catalogue has the workload of `seen`."""
    planned = facts().planned
    known = Workload(
        name="t",
        unit="items",
        data=None,
        options=(),
        precision="fp32",
        distributed=False,
        bound=None,
        cpu_only=False,
        requires=(),
        missing=(),
        extra=None,
        ram_gib=None,
        classic_factor=1.0,
        legacy_2020=(),
        description="",
        origin="package.module:t",
        package="package",
        source_sha256="",
        source_modules=(),
    )
    resolved = msgspec.structs.replace(planned.resolved, catalogue=Catalogue(workloads={"t": known}, data_sets={}))
    return facts(planned=msgspec.structs.replace(planned, resolved=resolved))


FACTS = facts_of_a_workload()


async def hear(*lines: dict[str, Any]) -> Any:
    """A launch whose worker said this. Raises DecodeError for what is no event."""
    tenant = tenant_of(-1)
    tenant._on_entered = lambda *_: None
    for line in lines:
        for event in Lines(AnyEvent).feed(json.dumps(line).encode() + b"\n"):
            tenant._note(event)
    return tenant


def is_read_back(*lines: dict[str, Any]) -> bool:
    """Whether these lines are events, and so make a record that can be read; False for what is refused."""
    try:
        tenant = asyncio.run(hear(*lines))
    except msgspec.DecodeError:
        return False
    failed = next(iter(tenant.failures), None)
    failure = Failure(cause=failed.kind, detail=failed.message, traceback=failed.traceback) if failed else None
    content = encode_record(make_record(FACTS, seen(0, ranks=tenant.ranks, failure=failure)))
    msgspec.json.decode(content, type=Record)
    assert isinstance(read_record(content, "s.t.J0.0.json"), ReadRecord)
    return True


def with_odd_fields(name: str) -> Iterator[dict[str, Any]]:
    """The event with each of its fields odd in turn, and what is in them."""
    good = EVENTS[name]
    for field, value in good.items():
        for odd in ODD:
            yield {"event": name, **good, field: odd}
            if isinstance(value, dict):
                yield {"event": name, **good, field: {"key": odd}}
            if isinstance(value, list):
                yield {"event": name, **good, field: [[odd, 1]]}
                yield {"event": name, **good, field: [[1, odd]]}


@pytest.mark.parametrize("name", EVENTS)
def test_what_is_accepted_from_a_worker_can_be_read_back(name: str) -> None:
    assert is_read_back({"event": name, **EVENTS[name]})
    assert False in [is_read_back(event) for event in with_odd_fields(name)]


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.sampled_from(sorted(EVENTS)).map(lambda name: {"event": name, **EVENTS[name]}), max_size=9))
def test_events_in_any_order_make_a_record(lines: list[dict[str, Any]]) -> None:
    entered = [line for line in lines if line["event"] == "Entered"]
    assert is_read_back(*lines) == (len(entered) < 2), "a rank enters once"


def test_the_items_of_a_launch_are_bounded_as_those_of_a_slice() -> None:
    most = {"event": "Slice", **EVENTS["Slice"], "count": 10**15}
    assert is_read_back(most)
    assert not is_read_back(most, most)

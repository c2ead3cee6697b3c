"""The protocol: a byte stream, cut anywhere, is the messages that were written."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milabench_ng.model.events import (
    AnyCommand,
    AnyEvent,
    Digest,
    Done,
    Failed,
    Full,
    Lines,
    Loss,
    Phase,
    Slice,
    Start,
    Stop,
    encode,
)

EVENTS = [
    Phase(name="build", seconds=0.25),
    Slice(rank=3, start_s=1.5, length_s=0.5, count=256, steps=2, wait_s=0.125),
    Loss(step=10, value=None),
    Digest(step=100, sha256="ab"),
    Full(time_s=12.0, count=1000),
    Failed(kind="exception", message='line one\nline "two" – ünï', traceback="a\n b\n"),
    Done(time_s=13.0, count=1000, steps=8, ran="fp32", matmul_error=1e-7),
]
STREAM = b"".join(encode(event) for event in EVENTS)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_chunks_may_end_anywhere(cuts: list[int]) -> None:
    lines = Lines(AnyEvent)
    edges = [0, *sorted(cuts), len(STREAM)]
    received = [event for start, end in itertools.pairwise(edges) for event in lines.feed(STREAM[start:end])]
    assert received == EVENTS


def test_an_event_is_one_line_that_says_what_it_is() -> None:
    line = encode(EVENTS[1])
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert msgspec.json.decode(line) == {
        "event": "Slice",
        "rank": 3,
        "start_s": 1.5,
        "length_s": 0.5,
        "count": 256,
        "steps": 2,
        "wait_s": 0.125,
        "backlog": None,
        "latency": [],
        "notes": {},
        "item_latency": {},
    }
    assert encode(EVENTS[5]).count(b"\n") == 1


def test_a_message_is_not_given_before_its_line_ends() -> None:
    lines = Lines(AnyCommand)
    assert list(lines.feed(encode(Start()) + encode(Stop())[:-1])) == [Start()]
    assert list(lines.feed(b"")) == []
    assert list(lines.feed(b"\n")) == [Stop()]


@pytest.mark.parametrize(
    "line", [b"\n", b"Segmentation fault\n", b'{"event":"Rumour"}\n', b'{"event":"Full"}\n', b"[]\n"]
)
def test_what_is_no_message_is_an_error(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        list(Lines(AnyEvent).feed(line))

"""A fleet that works for hours says so, also where nothing moves on a terminal."""

from __future__ import annotations

from milabench_ng.fleet.still_working import still_working, tell_until


def test_it_is_told_until_the_session_is_over() -> None:
    told: list[str] = []
    waits = iter((False, False, True))
    tell_until(lambda _: next(waits), "screen", 16, lambda: 3, told.append)
    assert told == ["screen: 13 of 16 still at work after 0.0 s"] * 2


def test_a_session_that_is_over_at_once_tells_nothing() -> None:
    told: list[str] = []
    with still_working("screen", 1, lambda: 0, told.append):
        pass
    assert told == []

"""Sessions are told apart by the hours between launches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from milabench_ng.records.separate_sessions import session_at, session_starts

BEGAN = datetime(2026, 1, 6, 22, tzinfo=UTC)


def at(*hours: float) -> list[datetime]:
    return [BEGAN + timedelta(hours=each) for each in hours]


def test_six_hours_without_a_launch_begin_a_session() -> None:
    launches = at(0, 1, 6.9, 12.9, 13, 18.99, 24.99)
    starts = session_starts(reversed(launches))
    assert starts == tuple(at(0, 12.9, 24.99))
    assert [session_at(each, starts) for each in launches] == [1, 1, 1, 2, 2, 2, 3]


def test_another_gap_counts_otherwise() -> None:
    launches = at(0, 1, 2.5)
    assert session_starts(launches) == (BEGAN,)
    assert len(session_starts(launches, 1.5)) == 2
    assert len(session_starts(launches, 0.5)) == 3
    assert session_starts([]) == ()

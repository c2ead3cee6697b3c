"""A session that begins too soon after the one before says that both count as one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from milabench_ng.records.ledger import AnyLedgerEvent, Attempt, Chain, Finished, Interrupted, LedgerLine, Session
from milabench_ng.run.persistence.sessions import counts_with_the_last

BEGUN = datetime(2026, 1, 6, 16, tzinfo=UTC)
SESSION = Session(number=1, hostname="h", boot_id="b", pid=7, command_line=("mnb", "jobs"))
LAUNCH = Attempt(label="quick.vae", job_id="0.0", number=1, batch=0)
END = Finished(missing=1, failed=0)


def chain(*events: AnyLedgerEvent) -> Chain:
    utc = "2026-01-06T16:00:00.000000Z"
    lines = (LedgerLine(number=number, previous="", utc=utc, what=what) for number, what in enumerate(events))
    return Chain(entries=tuple(lines))


def test_a_second_session_after_four_minutes_is_none() -> None:
    assert counts_with_the_last(chain(SESSION, LAUNCH, END), 3, BEGUN + timedelta(minutes=4)) == (
        "session 2 begins 4 min 0 s after the last launch of the one before: they count as one, since they are less "
        "than 6 h apart"
    )


@pytest.mark.parametrize(
    ("events", "sessions", "hours"),
    [
        ((SESSION, LAUNCH, END), 3, 6),  # far enough
        ((SESSION, LAUNCH, END), 1, 0),  # the plan has no other
        ((SESSION, LAUNCH), 3, 0),  # the first was killed, and goes on
        ((SESSION, LAUNCH, Interrupted(by="SIGINT"), END), 3, 0),
        ((SESSION, END), 3, 0),  # nothing was measured
        ((), 3, 0),
    ],
)
def test_nothing_is_said_of_others(events: tuple[AnyLedgerEvent, ...], sessions: int, hours: int) -> None:
    assert counts_with_the_last(chain(*events), sessions, BEGUN + timedelta(hours=hours)) == ""

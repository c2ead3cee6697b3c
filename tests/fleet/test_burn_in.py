"""Failures per node-hour: counted, with the exact interval, early half against late half."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from milabench_ng.fleet.burn_in import BurnIn, Span, burn_in, spans_of
from milabench_ng.model.units import utc_iso
from milabench_ng.records.ledger import Attempt, Finished, LedgerLine, Recorded, Session

BEGIN = datetime(2026, 1, 6, 16, tzinfo=UTC)
SESSION = Session(number=1, hostname="h", boot_id="b", pid=1, command_line=())


def line(hours: float, what: object) -> LedgerLine:
    return LedgerLine(number=0, previous="", utc=utc_iso(BEGIN + timedelta(hours=hours)), what=what)  # type: ignore[arg-type]


def recorded(cause: str | None, number: int = 1) -> Recorded:
    return Recorded(label="s.a", job_id="0.0", number=number, file="a.json", sha256="0", cause=cause)


def test_failures_are_counted_in_the_half_in_which_they_were() -> None:
    resumed = (
        line(0, SESSION),
        line(1, recorded("oom")),
        line(2, recorded(None)),
        line(2, Attempt(label="s.a", job_id="1.0", number=1, batch=1)),
        line(10, SESSION),  # a pause of eight hours is no time of work
        line(11, recorded("device_lost")),
        line(11.5, recorded("interrupted")),
        line(11.5, recorded("oom", number=0)),
        line(12, Finished(missing=0, failed=1)),
    )
    assert spans_of(resumed) == (Span(7200.0, (3600.0,)), Span(7200.0, (3600.0,)))
    odd = LedgerLine(number=0, previous="", utc="yesterday", what=SESSION)
    assert spans_of((odd, line(4, recorded("oom")))) == (Span(0.0, ()),), "a node may send anything"
    quiet = (line(0, SESSION), line(4, Finished(missing=0, failed=0)))
    assert burn_in((resumed, quiet, ())) == BurnIn(node_hours=8.0, early=1, late=1)
    assert burn_in(((), ())) is None


def test_the_interval_is_that_of_a_poisson_count() -> None:
    none = BurnIn(node_hours=10.0, early=0, late=0)
    assert (none.rate, none.interval[0], none.chance) == (0.0, 0.0, 1.0)
    assert none.interval[1] == pytest.approx(-math.log(0.025) / 10, rel=1e-9)
    ten = BurnIn(node_hours=1.0, early=9, late=1)
    assert ten.interval == (pytest.approx(4.795, abs=1e-3), pytest.approx(18.390, abs=1e-3))  # Garwood's table
    assert ten.chance == pytest.approx(2 * 11 / 1024)

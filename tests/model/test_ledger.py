"""The ledger's chain: sound as written, broken by whatever is done to it afterwards."""

from __future__ import annotations

import hashlib
import json

import pytest

from milabench_ng.records.ledger import (
    FIRST,
    AnyLedgerEvent,
    Attempt,
    Chain,
    Recorded,
    Session,
    Started,
    attempts,
    check_chain,
    extend,
    lost_attempts,
)

STARTED = Started(
    run_id="r", version="1", plan_sha256="p", profile_sha256="q", launches=2, order="interleaved", nonce="n\n\u2028"
)
SESSION = Session(number=1, hostname="h", boot_id="b", pid=7, command_line=("mnb", "jobs"))


def attempt(job_id: str, number: int) -> Attempt:
    return Attempt(label="s.a", job_id=job_id, number=number, batch=0)


def recorded(job_id: str, number: int) -> Recorded:
    return Recorded(label="s.a", job_id=job_id, number=number, file=f"{job_id}.json", sha256="0", cause=None)


EVENTS: tuple[AnyLedgerEvent, ...] = (
    *(STARTED, SESSION, attempt("0.0", 1), attempt("0.1", 1), recorded("0.0", 1)),
    *(attempt("0.1", 2), recorded("0.1", 2)),
)


@pytest.fixture
def content() -> bytes:
    """A ledger of three appends."""
    chain, written = Chain(), b""
    for part in (EVENTS[:2], EVENTS[2:4], EVENTS[4:]):
        chain, lines = extend(chain, "2026-01-06T16:00:00Z", part)
        written += lines
    assert check_chain(written) == chain
    return written


def test_each_line_names_the_hash_of_the_line_before(content: bytes) -> None:
    lines = content.splitlines()
    assert [json.loads(line)["previous"] for line in lines] == [
        FIRST,
        *(hashlib.sha256(line).hexdigest() for line in lines[:-1]),
    ]
    assert check_chain(content).events == EVENTS
    assert check_chain(content).problems == ()


def test_no_line_can_be_changed_taken_out_swapped_or_put_in(content: bytes) -> None:
    lines = content.splitlines(keepends=True)
    for place in range(len(lines) - 1):
        without = [*lines[:place], *lines[place + 1 :]]
        twice = [*lines[: place + 1], *lines[place:]]
        swapped = [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]]
        changed = [*lines[:place], lines[place].replace(b"2026", b"2027"), *lines[place + 1 :]]
        for tampered in (without, twice, swapped, changed):
            assert check_chain(b"".join(tampered)).problems


def test_a_line_cut_short_is_told_from_a_broken_chain(content: bytes) -> None:
    for cut in range(1, len(content.splitlines()[-1])):
        chain = check_chain(content[: -1 - cut])
        assert chain.torn
        assert chain.problems == ()
        assert chain.events == EVENTS[:-1]


def test_a_missing_line_is_named_once(content: bytes) -> None:
    lines = content.splitlines(keepends=True)
    assert len(lines) > 4
    assert check_chain(b"".join(lines[:2] + lines[3:])).problems == (
        "line 3: its number is 3, 2 was expected",
        "line 3: the line before it is not the original one",
    )


def test_what_is_no_ledger_has_problems() -> None:
    assert check_chain(b"") == Chain()
    for bad in (b"\x00\xff\n", b"[]\n", b"{}\n", b"[" * 100_000 + b"\n", b'{"number": 0}\n'):
        assert check_chain(bad).problems


def test_attempts_without_a_record_are_known() -> None:
    assert attempts(EVENTS) == {("s.a", "0.0"): 1, ("s.a", "0.1"): 2}
    assert lost_attempts(EVENTS) == (attempt("0.1", 1),)

"""``ledger.jsonl``: what was done to a result folder, one event per line, append-only and chained by hashes.

A line holds the SHA-256 of the line before it (its bytes without the newline), so no line can be removed, changed or
inserted without changing all that follow. This reveals accidents and clumsy edits. Rewriting the whole file can rewrite
the chain: a buyer who wants more gives a ``--nonce`` and asks for the last line's hash at once.

An attempt is noted before it begins, and its record (name and SHA-256) before the record gets its final name. So an
attempt without a record was killed, and it counts.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import refuse_large_numbers
from milabench_ng.model.plain import short, whole_json
from milabench_ng.node.edge import Edge
from milabench_ng.records.names import RECORD_NAME
from milabench_ng.records.origin import newer
from milabench_ng.records.proof import CodeProof, DataProof
from milabench_ng.records.stopping import Stopping

LEDGER_SCHEMA = 2
"""2: sessions say what they read of code and data."""
FIRST = "0" * 64
"""The hash that the first line names for the line before it."""


NOT_TRIED = ("interrupted", "harness_error")
"""Causes that say nothing about a launch: it is tried again without being asked for."""


class LedgerEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="event"):
    """Base of all events."""


class Started(LedgerEvent, frozen=True, kw_only=True):
    """The run begins: what it promises."""

    schema: int = LEDGER_SCHEMA
    run_id: str
    version: str
    plan_sha256: str
    profile_sha256: str
    launches: int
    order: str
    nonce: str | None
    stopping: Stopping | None = None
    """When it may end before its last repeat."""


class Session(LedgerEvent, frozen=True, kw_only=True):
    """An orchestrator begins to work on the folder, at first or for a resume."""

    number: int
    hostname: str
    boot_id: str
    pid: int
    command_line: tuple[str, ...]
    spool: str | None = None
    """The folder for what the result folder does not take, if one was named."""


class Rebooted(LedgerEvent, frozen=True, kw_only=True):
    """The node was rebooted since the previous session."""

    before: str
    after: str


class Resumed(LedgerEvent, frozen=True, kw_only=True):
    """What a later session found, and which differences from the first one the user accepted."""

    missing: int
    """Launches without a valid record."""
    accepted: tuple[str, ...] = ()
    """The differences in words, each beginning with its kind: ``software: torch was 2.14 and is 2.15``."""


class Torn(LedgerEvent, frozen=True, kw_only=True):
    """The last line was cut short by a crash and removed; nothing had been done that relied on it."""

    text: str


class CodeSeen(LedgerEvent, frozen=True, kw_only=True):
    """The code, read before the session's first batch or after its last."""

    edge: Edge
    code: CodeProof


class DataSeen(LedgerEvent, frozen=True, kw_only=True):
    """A dataset, read before the session's first batch or after its last."""

    edge: Edge
    data: DataProof


class Attempt(LedgerEvent, frozen=True, kw_only=True):
    """A launch is about to be attempted."""

    label: str
    job_id: str
    number: int
    """1 for the first try of this launch."""
    batch: int


class Company(LedgerEvent, frozen=True, kw_only=True):
    """A launch runs so that its neighbours are not alone; it is not an attempt.

    It is company in the plan, or already has its record while a neighbour is retried.
    """

    label: str
    job_id: str
    batch: int


class Recorded(LedgerEvent, frozen=True, kw_only=True):
    """An attempt, or company that the plan asks for, has its record."""

    label: str
    job_id: str
    number: int
    """Number of the attempt; 0 for company."""
    file: Annotated[str, msgspec.Meta(pattern=r"^[^/\x00]+$")]
    """Its name in the folder."""
    sha256: str
    cause: str | None
    """Why it failed; None for a success."""


class Sampled(LedgerEvent, frozen=True, kw_only=True):
    """The telemetry of a batch is kept, sample by sample."""

    batch: int
    file: Annotated[str, msgspec.Meta(pattern=r"^series/[^/\x00]+$")]
    sha256: str


class Damaged(LedgerEvent, frozen=True, kw_only=True):
    """A file was not as it had been written, while the run went on: somebody else removed or changed it."""

    file: str
    aside: str | None
    """The name under which what was found is kept; None if it was gone."""
    restored: bool
    """Whether it was written again, from memory; if not, its launch has no valid record."""


class StoppedEarly(LedgerEvent, frozen=True, kw_only=True, tag="Enough"):
    """The run ends before its last repeat, as its rule for stopping has it."""

    repeats: Annotated[int, msgspec.Meta(ge=1)]
    """How many were done."""
    why: Literal["narrow", "budget"]
    detail: str
    """The figure that decided, in words."""


class Interrupted(LedgerEvent, frozen=True, kw_only=True):
    """The session was told to stop."""

    by: str
    """The signal's name."""


class Finished(LedgerEvent, frozen=True, kw_only=True):
    """The session has done all it could; ``missing`` launches have no valid record."""

    missing: int
    failed: int
    """Launches whose last attempt failed."""


AnyLedgerEvent = (
    Started
    | Session
    | Rebooted
    | Resumed
    | Torn
    | CodeSeen
    | DataSeen
    | Attempt
    | Company
    | Recorded
    | Sampled
    | Damaged
    | StoppedEarly
    | Interrupted
    | Finished
)


class ChainedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of any ledger; it also says what happened."""

    number: int
    """0, 1, 2..."""
    previous: str
    """SHA-256 of the line before, in hexadecimal; `FIRST` for the first."""
    utc: str


class LedgerLine(ChainedLine, frozen=True, kw_only=True):
    """One line of the ledger of a run."""

    what: AnyLedgerEvent


Line = TypeVar("Line", bound=ChainedLine)


class CheckedLines(msgspec.Struct, Generic[Line], frozen=True, kw_only=True):
    """Any ledger as read."""

    entries: tuple[Line, ...] = ()
    """All lines that could be read, in order."""
    problems: tuple[str, ...] = ()
    """What breaks the chain, with the line's number from 1; empty for a sound ledger."""
    torn: bytes = b""
    """What follows the last newline: a line that a crash cut short."""
    head: str = FIRST
    """The hash that the next line must name."""


Checked = TypeVar("Checked", bound=CheckedLines[Any])


class Chain(CheckedLines[LedgerLine], frozen=True, kw_only=True):
    """The ledger of a run."""

    @property
    def events(self) -> tuple[AnyLedgerEvent, ...]:
        """What happened, in order."""
        return tuple(entry.what for entry in self.entries)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All sessions, in order."""
        return tuple(event for event in self.events if isinstance(event, Session))


LaunchKey = tuple[str, str]
"""A launch: label and job id."""

_decoder = msgspec.json.Decoder(LedgerLine)


def ended_by_itself(events: Sequence[AnyLedgerEvent]) -> bool:
    """Whether the last session did all that it was to do."""
    last = [type(event) for event in events if not isinstance(event, Damaged)][-2:]
    return bool(last) and last[-1] is Finished and Interrupted not in last


def of_last_session(events: Sequence[AnyLedgerEvent]) -> Sequence[AnyLedgerEvent]:
    """The events from the last start of an orchestrator on."""
    starts = [place for place, event in enumerate(events) if isinstance(event, Session)]
    return events[starts[-1] :] if starts else events


def extend(chain: Chain, utc: str, events: Iterable[AnyLedgerEvent]) -> tuple[Chain, bytes]:
    """The chain extended by events at time ``utc``, and the lines to append for them. Pure."""
    entries, head, lines = list(chain.entries), chain.head, b""
    for event in events:
        entries.append(LedgerLine(number=len(entries), previous=head, utc=utc, what=event))
        line = whole_json(entries[-1]) + b"\n"
        head = digest(line)
        lines += line
    return msgspec.structs.replace(chain, entries=tuple(entries), head=head), lines


def digest(line: bytes) -> str:
    """SHA-256 of a line without its newline, in hexadecimal."""
    return hashlib.sha256(line.removesuffix(b"\n")).hexdigest()


def check_lines(content: bytes, decoder: msgspec.json.Decoder[Line], kind: type[Checked]) -> Checked:
    """Read the lines of a ledger of this ``kind`` and check their chain: numbers, hashes, types. Pure."""
    *lines, torn = content.split(b"\n")
    entries: list[Line] = []
    problems: list[str] = []
    head = FIRST
    expected = 0
    for place, line in enumerate(lines):
        try:
            refuse_large_numbers(line, "JSON")
            entry = decoder.decode(line)
        except (InputError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problems.append(f"line {place + 1}: not an entry: {short(error)}")
        else:
            entries.append(entry)
            if entry.number != expected:
                problems.append(f"line {place + 1}: its number is {entry.number}, {expected} was expected")
            expected = entry.number
            if entry.previous != head:
                problems.append(f"line {place + 1}: the line before it is not the original one")
        head = digest(line)
        expected += 1
    return kind(entries=tuple(entries), problems=tuple(problems), torn=torn, head=head)


def check_chain(content: bytes) -> Chain:
    """Read a ledger and check its chain: numbers, hashes, types. Pure; errors are in ``problems``."""
    chain = check_lines(content, _decoder, Chain)
    first, problems = next(iter(chain.events), None), chain.problems
    if isinstance(first, Started) and first.schema > LEDGER_SCHEMA:
        problems = (newer("ledger", first.schema, LEDGER_SCHEMA), *problems)
    elif first is not None and not isinstance(first, Started):
        problems = (*problems, "line 1: the ledger does not begin with the start of a run")
    return msgspec.structs.replace(chain, problems=problems)


def attempts(events: Iterable[AnyLedgerEvent]) -> Counter[LaunchKey]:
    """How often each launch was tried."""
    return Counter((event.label, event.job_id) for event in events if isinstance(event, Attempt))


def recorded(events: Iterable[AnyLedgerEvent]) -> tuple[Recorded, ...]:
    """The attempts that left a record."""
    return tuple(event for event in events if isinstance(event, Recorded) and event.number > 0)


def unlisted(names: Iterable[str], events: Iterable[AnyLedgerEvent]) -> tuple[str, ...]:
    """The records among the files of a folder that its ledger does not name."""
    listed = {event.file for event in events if isinstance(event, Recorded)}
    return tuple(sorted(name for name in names if RECORD_NAME.fullmatch(name) and name not in listed))


def contradictions(chain: Chain, sums: Mapping[str, str | None]) -> Iterator[str]:
    """Where the records of a folder are not those of its ledger. Pure.

    ``sums``: the SHA-256 of each record there, by name; None if it is not known.
    """
    noted = {event.file: event for event in chain.events if isinstance(event, Recorded)}
    for file, event in noted.items():
        if file not in sums:
            failed = f" (it failed: {event.cause})" if event.cause else ""
            yield f"{event.label} J{event.job_id}: attempt {event.number} was recorded{failed}, and {file} is not there"
        elif sums[file] not in (None, event.sha256):
            yield f"{file}: the file was changed after it was recorded"
    yield from (f"{file}: the ledger has no attempt for it" for file in unlisted(sums, chain.events))


def lost_attempts(events: Sequence[AnyLedgerEvent]) -> tuple[Attempt, ...]:
    """The attempts that left no record: the orchestrator was killed, or the node went down."""
    known = {(event.label, event.job_id, event.number) for event in recorded(events)}
    return tuple(
        event
        for event in events
        if isinstance(event, Attempt) and (event.label, event.job_id, event.number) not in known
    )

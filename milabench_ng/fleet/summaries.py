"""The numbers of every node's sessions, for a report on a thousand nodes in seconds.

The records of a thousand nodes take gigabytes and minutes to read. Their summaries take seconds: each is kept beside
its session's folder, with the hash of that session's ledger, and counts as long as the ledger is the same. A summary is
no evidence: `mnb verify` computes everything from the records.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.fleet.folder import FleetFolder, NodeSession
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, read_content
from milabench_ng.model.plain import whole_json
from milabench_ng.records.names import LEDGER, file_digest, write_atomically

KEPT_SCHEMA = 1
_FEW = 4
"""So few sessions are read by this process: others take longer to start."""
_AT_ONCE = 8


class KeptSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A file beside a session's folder. ``job_id`` is null so that readers of records skip it."""

    schema: int = KEPT_SCHEMA
    job_id: None = None
    ledger_sha256: str
    """Of the session's ledger when it was made."""
    summary: msgspec.Raw


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a session of a node came to."""

    session: NodeSession
    summary: Summary | None
    problem: str = ""
    """Why there is none."""


def summaries(fleet: FleetFolder) -> Iterator[SessionSummary]:
    """The summaries of all sessions, one after the other, in their order: those that are kept, and others anew."""
    wanting = {one for one in fleet.sessions if not _is_kept(one)}
    with workers(len(wanting)) as pool:
        if pool is None:
            yield from map(summary_of, fleet.sessions)
            return
        made = pool.map(_encoded, [one for one in fleet.sessions if one in wanting], chunksize=_AT_ONCE)
        for one in fleet.sessions:
            yield _decoded(one, *next(made)) if one in wanting else summary_of(one)


def keep_summaries(fleet: FleetFolder) -> int:
    """Write the summaries that are missing beside their sessions' folders; how many these are."""
    wanting = [one for one in fleet.sessions if not _is_kept(one)]
    with workers(len(wanting)) as pool:
        made = map(keep_summary, wanting) if pool is None else pool.map(keep_summary, wanting, chunksize=_AT_ONCE)
        return sum(made)


def keep_summary(session: NodeSession) -> bool:
    """Write the summary of a session beside its folder, if it has a ledger and can be read."""
    ledger = ledger_digest(session)
    content, _ = _encoded(session)
    if not ledger or content is None:
        return False
    kept = KeptSummary(ledger_sha256=ledger, summary=msgspec.Raw(content))
    write_atomically(kept_file(session), whole_json(kept))
    return True


def kept_file(session: NodeSession) -> Path:
    """Where the summary of a session is kept."""
    return session.path.with_name(f"{session.session}.summary.json")


def summary_of(session: NodeSession) -> SessionSummary:
    """The kept summary of a session, if it is of its ledger; made anew otherwise."""
    kept = _kept(session)
    if kept is not None and kept.ledger_sha256 == ledger_digest(session):
        return _decoded(session, bytes(kept.summary), "")
    return _decoded(session, *_encoded(session))


def _is_kept(session: NodeSession) -> bool:
    kept = _kept(session)
    return kept is not None and kept.ledger_sha256 == ledger_digest(session)


def _kept(session: NodeSession) -> KeptSummary | None:
    """Of an untrusted folder; None for anything that is not one of this version."""
    try:
        found = msgspec.json.decode(read_content(kept_file(session), LARGE, os.O_NOFOLLOW), type=KeptSummary)
    except (InputError, msgspec.MsgspecError):
        return None
    return found if found.schema == KEPT_SCHEMA else None


def ledger_digest(session: NodeSession) -> str:
    """Empty if there is no ledger."""
    try:
        return file_digest(read_content(session.path / LEDGER, LARGE, os.O_NOFOLLOW))
    except InputError:
        return ""


def _encoded(session: NodeSession) -> tuple[bytes | None, str]:
    """The summary of the folder as JSON, since that is cheaper to hand on, or why there is none."""
    try:
        return encode_summary(load(session.path, f"{session.node} {session.session}")).encode(), ""
    except InputError as error:
        return None, str(error)


def _decoded(session: NodeSession, content: bytes | None, problem: str) -> SessionSummary:
    name = f"{session.node} {session.session}"
    try:
        made = None if content is None else decode_summary(content, name)
    except InputError as error:
        made, problem = None, str(error)
    return SessionSummary(session=session, summary=made, problem=problem)


@contextmanager
def workers(tasks: int) -> Iterator[Executor | None]:
    """A process for each core; None for few tasks or one core."""
    cores = len(os.sched_getaffinity(0))
    if tasks <= _FEW or cores == 1:
        yield None
        return
    pool = ProcessPoolExecutor(min(cores, tasks), mp_context=multiprocessing.get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)

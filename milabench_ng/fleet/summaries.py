"""The numbers of every node's sessions, for a report on a thousand nodes in seconds.

The records of a thousand nodes take gigabytes and minutes to read. So every node reduces its own to a summary, and
sends it with them. A summary counts if the fleet's ledger has its hash. It is no evidence: `mnb verify` computes
everything from the records, and compares.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from milabench_ng.analysis.summary.folder import decode_summary, encode_summary
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.fleet.folder import FleetFolder, NodeSession, own_names
from milabench_ng.fleet.ledger import Collected
from milabench_ng.model.errors import InputError
from milabench_ng.records.folder import UNBOUNDED
from milabench_ng.records.names import whole_content
from milabench_ng.verification.absurd import computing_from
from milabench_ng.verification.opening import opened

_FEW = 4
"""So few sessions are read by this process: others take longer to start."""
_AT_ONCE = 4


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a session of a node came to."""

    session: NodeSession
    summary: Summary | None
    problem: str = ""
    """Why there is none."""


def summaries(fleet: FleetFolder) -> Iterator[SessionSummary]:
    """The summaries of all sessions, one after the other, in their order: as the nodes made them, or else anew."""
    collected = fleet.collected
    of_nodes = {(one.node, one.session): collected.get((one.node, one.session)) for one in fleet.sessions}
    wanting = [one for one in fleet.sessions if kept_content(one, of_nodes[one.node, one.session]) is None]
    with workers(len(wanting)) as each:
        made, anew = each(encoded, wanting), set(wanting)
        for one in fleet.sessions:
            content, problem = next(made) if one in anew else (kept_content(one, of_nodes[one.node, one.session]), "")
            yield _decoded(one, content, problem)


def kept_content(session: NodeSession, collected: Collected | None) -> bytes | None:
    """The summary that came with a session; None if there is none, or not the one of the fleet's ledger."""
    if collected is None or not collected.summary_sha256:
        return None
    file = session.path.with_name(own_names(session.session)[1])
    return whole_content(file, collected.summary_sha256)


def encoded(session: NodeSession) -> tuple[bytes | None, str]:
    """The summary of a session's records as JSON, since that is cheaper to hand on, or why there is none."""
    try:
        with computing_from(session.path), opened(session.path, UNBOUNDED) as there:
            return encode_summary(there.summary).encode(), ""
    except InputError as error:
        return None, str(error)


def _decoded(session: NodeSession, content: bytes | None, problem: str) -> SessionSummary:
    try:
        made = None if content is None else decode_summary(content, session.name)
    except InputError as error:
        made, problem = None, str(error)
    return SessionSummary(session=session, summary=made, problem=problem)


@contextmanager
def workers(tasks: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A ``map`` over a process for each core; the usual one for few tasks or one core."""
    cores = len(os.sched_getaffinity(0))
    if tasks <= _FEW or cores == 1:
        yield map
        return
    pool = ProcessPoolExecutor(min(cores, tasks), mp_context=multiprocessing.get_context("spawn"))
    try:
        yield partial(pool.map, chunksize=_AT_ONCE)
    finally:
        pool.shutdown(cancel_futures=True)

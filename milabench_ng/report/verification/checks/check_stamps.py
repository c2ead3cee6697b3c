"""The rule on time stamps: somebody else's clock saw the ledger grow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from milabench_ng.records.ledger import Chain, LedgerLine, Recorded, Session
from milabench_ng.report.verification.checks.clocks import moment
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.report.verification.findings import OFF, Finding, judged
from milabench_ng.report.verification.stamping import Stamp

SKEW_S = 5.0
"""How much later than a stamp on it the node's clock may say that a line was written."""


def stamps(evidence: Evidence) -> Finding:
    """The ledger was stamped soon after the start, after each repeat and after the end; no stamp contradicts it."""
    chain = evidence.ledger or Chain()
    places = {head: place for place, head in enumerate(heads(chain))}
    found = tuple(_of_others(evidence))
    wrong = list(_contradicting(found, chain, places))
    if evidence.rules.stamps is None:
        return judged(wrong) if wrong else OFF
    return judged([*wrong, *_too_late(found, chain, places, evidence.rules.stamps.delay_s)])


def heads(chain: Chain) -> tuple[str, ...]:
    """The head of a ledger after each of its lines."""
    return (*(entry.previous for entry in chain.entries[1:]), chain.head) if chain.entries else ()


def due(chain: Chain) -> dict[str, int]:
    """The lines, counted from 0, after which a stamp is due, in words: start, the last record of each run, end."""
    found: dict[str, int] = {}
    for place, entry in enumerate(chain.entries):
        event = entry.what
        if isinstance(event, Session) and not found:
            found["the start"] = place
        elif isinstance(event, Recorded):
            found[f"run {event.job_id.partition('.')[0]}"] = place
    return found | {"the end": len(chain.entries) - 1}


def _of_others(evidence: Evidence) -> Iterator[Stamp]:
    """The stamps; that of who signed the bundle, or may sign it, vouches for nothing."""
    own = {evidence.signer.principal, *evidence.rules.signed_by} - {None}
    for stamp in evidence.stamps:
        why = f"{stamp.by} signs the bundle, and cannot vouch for it"
        yield msgspec.structs.replace(stamp, utc=None, problem=why) if stamp.by in own else stamp


def _contradicting(found: tuple[Stamp, ...], chain: Chain, places: Mapping[str, int]) -> Iterator[str]:
    """Stamps that count and are of another ledger, or older than what they stamp."""
    for stamp in found:
        if stamp.utc is None:
            continue
        if stamp.head not in places:
            yield f"{stamp.by} stamped the head {stamp.head[:12]}, which this ledger never had: lines were cut off"
        elif _delay(stamp.utc, chain.entries[places[stamp.head]]) < -SKEW_S:
            yield f"line {places[stamp.head] + 1} of the ledger says that it is younger than its stamp by {stamp.by}"


def _too_late(found: tuple[Stamp, ...], chain: Chain, places: Mapping[str, int], limit_s: float) -> Iterator[str]:
    counted = [(places[one.head], one.utc) for one in found if one.utc and one.head in places]
    for what, line in due(chain).items() if chain.entries else ():
        delays = [_delay(utc, chain.entries[line]) for place, utc in counted if place >= line]
        if not delays:
            yield f"nobody stamped the ledger after {what}{_why(found)}"
        elif min(delays) > limit_s:
            yield f"the first stamp after {what} is {min(delays):.0f} s late, {limit_s:g} s are allowed"


def _delay(utc: datetime, entry: LedgerLine) -> float:
    stated = moment(entry.utc)
    return math.inf if stated is None else (utc - stated).total_seconds()


def _why(found: tuple[Stamp, ...]) -> str:
    problems = dict.fromkeys(stamp.problem for stamp in found if stamp.problem)
    return f" ({'; '.join(problems)})" if problems else ""

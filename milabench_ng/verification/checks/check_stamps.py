"""The rule on time stamps: somebody else's clock saw the ledger grow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from statistics import linear_regression, mean

import msgspec

from milabench_ng.analysis.statistics.intervals import t_tail
from milabench_ng.model.grouping import grouped
from milabench_ng.records.ledger import Chain, LedgerLine, Recorded, Session
from milabench_ng.verification.checks.clocks import idle_times, moment
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged
from milabench_ng.verification.stamping import Stamp

SKEW_S = 5.0
"""How much later than a stamp on it the node's clock may say that a line was written."""

_NAMED = 3
"""How many problems a reason names."""
_LEAST_STAMPS = 4
_GROWTH_S = 90.0
"""Who asks for a stamp every minute makes delays of up to a minute, which may grow from stamp to stamp."""
_CHANCE = 1e-4


def stamps(evidence: Evidence) -> Finding:
    """The ledger was stamped soon after the start, after each repeat and after the end; no stamp contradicts it."""
    chain = evidence.ledger
    places = {head: place for place, head in enumerate(heads(chain))}
    found = tuple(_of_others(evidence))
    wrong, rule = [*_contradicting(found, chain, places), *_drifting(found, chain, places)], evidence.rules.stamps
    if rule is None:
        return judged(wrong) if wrong else OFF
    return judged([*wrong, *_too_late(found, chain, places, rule.delay_s), *idle_times(evidence, rule.idle_s)])


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
    own = {*evidence.signer.principals, *evidence.rules.signed_by}
    for stamp in evidence.stamps:
        why = f"{stamp.by} signs the bundle, and cannot vouch for it"
        yield msgspec.structs.replace(stamp, utc=None, problem=why) if stamp.by in own else stamp


def _contradicting(found: tuple[Stamp, ...], chain: Chain, places: Mapping[str, int]) -> Iterator[str]:
    """Stamps that count and are of another ledger, or older than what they stamp."""
    foreign = [stamp for stamp in found if stamp.utc is not None and stamp.head not in places]
    for by, stamps in grouped(foreign, lambda stamp: stamp.by).items():
        more = f" and {len(stamps) - 1} more" if len(stamps) > 1 else ""
        yield f"{by} stamped the head {stamps[0].head[:12]}{more}, which this ledger never had: lines were cut off"
    for stamp in found:
        if stamp.utc is None or stamp.head not in places:
            continue
        if _delay(stamp.utc, chain.entries[places[stamp.head]]) < -SKEW_S:
            yield f"line {places[stamp.head] + 1} of the ledger says that it is younger than its stamp by {stamp.by}"


def _drifting(found: tuple[Stamp, ...], chain: Chain, places: Mapping[str, int]) -> Iterator[str]:
    """A node's clock that falls behind those of the stamps: with it, every second of work is longer than a second."""
    delays: dict[float, float] = {}
    for stamp in found:
        line = chain.entries[places[stamp.head]] if stamp.head in places else None
        stated = moment(line.utc) if line is not None else None
        if stamp.utc is not None and stated is not None:
            late = (stamp.utc - stated).total_seconds()
            delays[stated.timestamp()] = min(late, delays.get(stated.timestamp(), math.inf))
    rate = drift(delays)
    if rate is not None:
        yield f"the node's clock loses {rate:.1%} against those of the stamps"


def drift(delays: Mapping[float, float]) -> float | None:
    """By how much delays grow with the time, if that is no chance: seconds a second, by least squares. Pure.

    ``delays``: by the node's time, both in seconds. None if they grow by less than _GROWTH_S in all or than random
    delays do with probability _CHANCE.
    """
    times, late = list(delays), list(delays.values())
    if len(times) < _LEAST_STAMPS:
        return None
    slope, begin = linear_regression(times, late)
    rest = sum((one - begin - slope * at) ** 2 for at, one in delays.items()) / (len(times) - 2)
    middle = mean(times)
    error = math.sqrt(rest / sum((at - middle) ** 2 for at in times))
    grown = slope * (max(times) - min(times))
    return slope if grown > _GROWTH_S and t_tail(slope / max(error, 1e-12), len(times) - 2) < _CHANCE else None


def _too_late(found: tuple[Stamp, ...], chain: Chain, places: Mapping[str, int], limit_s: float) -> Iterator[str]:
    counted = [(places[one.head], one.utc) for one in found if one.utc and one.head in places]
    for what, line in due(chain).items() if chain.entries else ():
        delays = [_delay(utc, chain.entries[line]) for place, utc in counted if place >= line]
        if not delays:
            yield f"no timestamp on the ledger after {what}{_why(found)}"
        elif min(delays) > limit_s:
            yield f"the first stamp after {what} is {min(delays):.0f} s late, but the rules allow {limit_s:g} s"


def _delay(utc: datetime, entry: LedgerLine) -> float:
    stated = moment(entry.utc)
    return math.inf if stated is None else (utc - stated).total_seconds()


def _why(found: tuple[Stamp, ...]) -> str:
    problems = list(dict.fromkeys(stamp.problem for stamp in found if stamp.problem))
    more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
    return f" ({'; '.join(problems[:_NAMED])}{more})" if problems else ""

"""The folder in which results of a run wait that its result folder did not take, until a resume brings them back."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from milabench_ng.model.files import LARGE, read_content
from milabench_ng.records.ledger import Chain, LaunchKey, Started, check_chain, recorded
from milabench_ng.records.names import LEDGER, ResultFolder


class Spooled(msgspec.Struct, frozen=True):
    """What waits in a spool folder."""

    place: Path
    launches: frozenset[LaunchKey]
    """Those whose records are there."""


def own_spool(run_id: str) -> Path:
    """Where a run's sessions save what their folder does not take, if the user names no place."""
    return Path(tempfile.gettempdir(), f"mnb-spool-{run_id}")


def named_spools(chain: Chain) -> tuple[Path, ...]:
    """The spool folders that the sessions of a run were given, the last one's first."""
    return tuple(Path(session.spool) for session in reversed(chain.sessions) if session.spool)


def last_spool(chain: Chain, run_id: str) -> Path | None:
    """The spool folder in which a session of the run left results, the last one's first; not what others put there."""
    return next(filter(_saved_by_us, (*named_spools(chain), own_spool(run_id))), None)


def _saved_by_us(place: Path) -> bool:
    """Whether a spool folder of this user holds results."""
    return os.path.isdir(place) and place.lstat().st_uid == os.geteuid() and os.path.isfile(place / LEDGER)


def continued(ledger: bytes, spooled_lines: bytes) -> tuple[bytes, Chain]:
    """The lines that a spool adds to a ledger, and the ledger with them. Pure."""
    there = set(ledger.splitlines())
    lines = b"".join(line + b"\n" for line in spooled_lines.splitlines() if line not in there)
    return lines, check_chain(ledger + lines)


def continuation(ledger: bytes, place: Path) -> Chain | None:
    """The ledger with what a spool folder adds to it; None if that is nothing, or of another run."""
    whole = ledger[: ledger.rfind(b"\n") + 1]
    lines, chain = continued(whole, (place / LEDGER).read_bytes())
    return chain if lines and not chain.problems else None


def waiting(folder: Path, chain: Chain) -> Spooled | None:
    """What of the run in ``folder``, whose ledger is ``chain``, waits in its spool folder on this machine; None if that
    is nothing."""
    begun = next((event for event in chain.events if isinstance(event, Started)), None)
    place = begun and last_spool(chain, begun.run_id)
    more = place and continuation(read_content(ResultFolder(folder).ledger, LARGE, os.O_NOFOLLOW), place)
    if not place or not more:
        return None
    launches = frozenset((one.label, one.job_id) for one in recorded(more.events[len(chain.events) :]))
    return Spooled(place, launches) if launches else None

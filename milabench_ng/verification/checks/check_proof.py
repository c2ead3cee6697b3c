"""What the sessions read of code and data before and after their work (`records.proof`), for the rules on both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from milabench_ng.model.grouping import grouped
from milabench_ng.model.known_twins import KnownTwin
from milabench_ng.model.plain import names_of
from milabench_ng.node.edge import Edge
from milabench_ng.records.ledger import AnyLedgerEvent, Chain, CodeSeen, DataSeen, Session, Started
from milabench_ng.records.proof import CodeProof, DataProof
from milabench_ng.records.record import Data
from milabench_ng.verification.checks.clocks import moment
from milabench_ng.verification.evidence import Evidence

SAYS_WHAT_WAS_READ = 2
"""From this schema on, ledgers have what sessions read of code and data."""
_NAMED = 3
"""How many twins a line names."""
_LONGEST = 80
_TOLD = ("torch", "torchvision", "numpy")
"""The distributions that compute in every run: each must be compared, and a verdict shows their versions."""
SetKey = tuple[str, float]
"""A dataset and its scale."""


class SessionProofs(msgspec.Struct, frozen=True):
    """What one session read, by edge."""

    number: int
    code: dict[Edge, CodeProof]
    data: dict[tuple[Edge, SetKey], DataProof]


def proofs_of(chain: Chain) -> tuple[SessionProofs, ...]:
    """What the sessions of a ledger read, in order."""
    parts: list[list[AnyLedgerEvent]] = []
    for event in chain.events:
        if isinstance(event, Session):
            parts.append([])
        if parts:
            parts[-1].append(event)
    return tuple(
        SessionProofs(
            number,
            {event.edge: event.code for event in part if isinstance(event, CodeSeen)},
            {(one.edge, (one.data.name, one.data.scale)): one.data for one in part if isinstance(one, DataSeen)},
        )
        for number, part in enumerate(parts, 1)
    )


def unproven_code(evidence: Evidence) -> Iterator[str]:
    """Why the code that ran is not that of this version with its wheels as they were published."""
    sessions = proofs_of(evidence.ledger)
    if not sessions:
        yield "no session says which code it ran"
        return
    sums: dict[str, str] = {}
    for session in sessions:
        if "before" not in session.code:
            yield f"session {session.number} does not say which code it began with"
        for edge, code in session.code.items():
            yield from (f"session {session.number}: {what} {edge} the work" for what in _changed(evidence, code))
        if "after" in session.code:
            code = session.code["after"]
            yield from (f"session {session.number}: {what}" for what in _wheels(evidence, code))
            yield from (f"session {session.number}: {what}" for what in _exchanged(code, sums))
    if other_commit(evidence):
        yield with_what(evidence)
    if "after" not in sessions[-1].code:
        yield "the last session did not read its code after the work: mnb resume does"


def ran_commit(evidence: Evidence) -> str | None:
    """The commit that the last session says it had checked out; None if it names none."""
    codes = [code for session in proofs_of(evidence.ledger) for code in session.code.values()]
    return codes[-1].commit or None if codes else None


def with_what(evidence: Evidence) -> str:
    """Which mnb can verify the code that ran."""
    version, commit = evidence.manifest.version, ran_commit(evidence)
    if commit is not None:
        return f"check out commit {commit} of mnb, without files of your own (git status), and verify with that"
    if not evidence.same_version:
        return f"verify with mnb {version}"
    return f"it names no commit of mnb {version}: ask for it, and verify with that"


def other_commit(evidence: Evidence) -> tuple[str, ...]:
    """The rooms of mnb in which a session of its version ran other code than is here, and that no release tells."""
    codes = (code for session in proofs_of(evidence.ledger) for code in session.code.values())
    return tuple(sorted({room for code in codes for room in _other_rooms(evidence, code)}))


def _other_rooms(evidence: Evidence, code: CodeProof) -> list[str]:
    rooms = sorted(evidence.package.keys() | code.package.keys())
    return [room for room in rooms if evidence.package.get(room) != code.package.get(room)]


def _changed(evidence: Evidence, code: CodeProof) -> Iterator[str]:
    changed = _other_rooms(evidence, code)
    if changed:
        yield f"milabench_ng differed from the one here in {names_of(changed)}"
    if code.elsewhere:
        yield f"modules of milabench_ng came from elsewhere ({names_of(code.elsewhere)})"


def _wheels(evidence: Evidence, code: CodeProof) -> Iterator[str]:
    demanded = evidence.rules.libraries
    for name, wheel in code.wheels.items():
        if wheel is None:
            yield from (
                [f"{name} has no RECORD of its files, but the rules require the SHA-256 of all libraries"]
                if demanded
                else []
            )
            continue
        if wheel.differing:
            yield f"{name} {wheel.version} was changed after installation: {names_of(wheel.differing)}"
        if not wheel.files:
            yield f"none of the files of {name} {wheel.version} was read"
        stated = evidence.manifest.software.get(name, wheel.version)
        if stated != wheel.version:
            yield f"{name} {wheel.version} was read, but run.json says {stated}"
    if code.strays:
        yield f"files were loaded that belong to no installed package: {names_of(code.strays)}"
    if demanded and code.libraries not in map(str.lower, demanded):
        yield f"the libraries have SHA-256 {code.libraries[:12]}, which is not among those demanded"


def _exchanged(code: CodeProof, sums: dict[str, str]) -> Iterator[str]:
    """Distributions that an earlier session had with other files; ``sums`` has those so far."""
    for name, wheel in code.wheels.items():
        if wheel and sums.setdefault(name, wheel.sha256) != wheel.sha256:
            yield f"{name} {wheel.version} has other files than in an earlier session"


def uncompared(evidence: Evidence) -> str:
    """What computed and could not be compared, as an installer other than pip leaves it; empty if all was."""
    codes = [session.code["after"] for session in proofs_of(evidence.ledger) if "after" in session.code]
    bare = sorted({name for code in codes for name in (*code.wheels, *_TOLD) if code.wheels.get(name) is None})
    return (
        f"{names_of(bare, _NAMED)}: no RECORD to compare with (packages of Linux distributions keep none)"
        if bare
        else ""
    )


def libraries_fact(evidence: Evidence) -> str:
    """What the last session computed with: no list has all wheels, but results of one version can be compared."""
    sessions = proofs_of(evidence.ledger)
    code = sessions[-1].code.get("after") if sessions else None
    known = {name: one.version for name, one in code.wheels.items() if one} if code else {}
    versions = [f"{name} {known[name]}" for name in _TOLD if name in known]
    return f"{len(known)} distributions with SHA-256 {code.libraries}: {', '.join(versions)}" if code and known else ""


def unproven_data(evidence: Evidence) -> Iterator[str]:
    """Why the data that was read is not what the records say. Only ``closed`` asks a run that could not say it."""
    if not evidence.same_version or not (evidence.rules.closed or _could_say(evidence)):
        return
    sessions = proofs_of(evidence.ledger)
    trusted = {mark.what for one in evidence.records for mark in one.record.mnb.marks if mark.kind == _TRUSTED}
    first: dict[SetKey, str] = {}
    for key in _read_sets(evidence):
        if key[0] not in trusted and sessions and ("after", key) not in sessions[-1].data:
            yield f"the last session did not read {key[0]} after the work: mnb resume does"
    for session in sessions:
        for (edge, key), read in session.data.items():
            if read.differing:
                yield f"session {session.number}: {key[0]} was damaged {edge} the work: {names_of(read.differing)}"
            elif first.setdefault(key, read.checksum) != read.checksum:
                yield f"session {session.number}: {key[0]} {edge} the work is not what was read before"
            before = session.data.get(("before", key))
            if before is not None and before.changed_s != read.changed_s:
                yield f"session {session.number}: files of {key[0]} were changed during the work"
    yield from _impossible(evidence)
    yield from _unread(evidence, {session.number: session for session in sessions}, trusted)
    yield from _unknown(evidence, sessions)


_CLOCK_S = 5.0
"""File systems of other machines keep their own time."""


def _impossible(evidence: Evidence) -> Iterator[str]:
    """Data that was said to be read and cannot have been: without files, changed later, a twin that nothing made."""
    twins = {one.name for one in _all_sets(evidence) if one.kind == "twin"}
    session = 0
    for entry in evidence.ledger.entries:
        session += isinstance(entry.what, Session)
        if not isinstance(entry.what, DataSeen):
            continue
        data, read = entry.what.data, moment(entry.utc)
        where = f"session {session}: {data.name} {entry.what.edge} the work"
        if not data.files or not data.bytes:
            yield f"{where} had no files"
        if read is not None and data.changed_s > read.timestamp() + _CLOCK_S:
            yield f"{where} was changed {data.changed_s - read.timestamp():.0f} s after it was read"
        if data.name in twins and data.generator is None:
            yield f"{where} is recorded as a synthetic dataset without a generator"


def _could_say(evidence: Evidence) -> bool:
    """Whether the ledger is of a version that enters what was read."""
    events = evidence.ledger.events
    return any(isinstance(event, Started) and event.schema >= SAYS_WHAT_WAS_READ for event in events)


_TRUSTED = "data not read again"


def _all_sets(evidence: Evidence) -> Iterator[Data]:
    yield from (record.mnb.data for _, record in evidence.named() if record.mnb.data is not None)


def _read_sets(evidence: Evidence) -> tuple[SetKey, ...]:
    return tuple(dict.fromkeys((one.name, one.scale) for one in _all_sets(evidence)))


def _unread(evidence: Evidence, sessions: dict[int, SessionProofs], trusted: set[str]) -> Iterator[str]:
    """Launches whose data their session did not read before, or that say another checksum than it found."""
    for name, record in evidence.named():
        data, session = record.mnb.data, sessions.get(record.mnb.session)
        if data is None:
            continue
        demands = evidence.rules.data.keys() & {data.name, "*"}
        read = session.data.get(("before", (data.name, data.scale))) if session else None
        if read is None:
            if data.name not in trusted:
                yield f"{name}: its session did not compare {data.name} with its checksum"
            elif demands:
                yield f"{name}: the checksum of {data.name} was not compared (--skip-data-check), but rules require it"
        elif data.checksum not in (None, read.checksum):
            yield f"{name}: it says that {data.name} has another checksum than was found"


def _unknown(evidence: Evidence, sessions: tuple[SessionProofs, ...]) -> Iterator[str]:
    """Twins that are not what the same generator makes with the same libraries, where that is known."""
    known = {one.origin: one.checksum for one in evidence.known_twins}
    for (_, key), read in (pair for session in sessions for pair in session.data.items()):
        expected = known.get((*key, read.generator, tuple(sorted(read.libraries.items()))))
        if expected not in (None, read.checksum):
            yield f"{key[0]} has SHA-256 {read.checksum[:12]}, but its generator makes {expected[:12]}"


def twins_fact(evidence: Evidence) -> str:
    """The twins that were compared with none that this version knows, and why: made-up versions make them unknown."""
    twins = {(one.name, one.scale) for one in _all_sets(evidence) if one.kind == "twin"}
    read: dict[SetKey, list[DataProof]] = {key: [] for key in _read_sets(evidence) if key in twins}
    for session in proofs_of(evidence.ledger):
        for (_, key), proof in session.data.items():
            if key in read:
                read[key].append(proof)
    other = "" if evidence.same_version else f"the run is of mnb {evidence.manifest.version}"
    whys = {key: other or _not_compared(key, proofs, evidence.known_twins) for key, proofs in read.items()}
    told = [
        f"{', '.join(_cut(name) for name, _ in keys[:_NAMED])}{_more(keys)} ({_cut(why)})"
        for why, keys in grouped(whys, lambda key: whys[key]).items()
        if why
    ]
    return f"not compared with known ones: {'; '.join(told[:_NAMED])}{_more(told)}" if told else ""


def _more(named: Sequence[object]) -> str:
    return f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""


def _not_compared(key: SetKey, proofs: Sequence[DataProof], known: Sequence[KnownTwin]) -> str:
    """Why at least one reading of a twin could not be compared; empty if each was."""
    same = [one for one in known if (one.name, one.scale) == key]
    if not same:
        return f"none is known at scale {key[1]:g}" if key[0] in {one.name for one in known} else "none is known"
    if not proofs:
        return "no session read it"
    for proof in proofs:
        if proof.checksum in {one.checksum for one in same}:  # whatever made it
            continue
        made = [one for one in same if one.generator == proof.generator]
        if not made:
            return f"known of generator {same[-1].generator}, the run had {proof.generator}"
        others = [_other_libraries(one.libraries, proof.libraries) for one in made]
        if all(others):
            one, other = min((other for other in others if other), key=lambda pair: len(pair[0]))
            return f"known with {_versions(one)}, the run had {_versions(other)}"
    return ""


def _other_libraries(known: Mapping[str, str], had: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]] | None:
    """What differs, on both sides; None if nothing does."""
    names = [name for name in sorted(known.keys() | had.keys()) if known.get(name) != had.get(name)]
    sides = ({name: side.get(name, "none") for name in names} for side in (known, had))
    return (next(sides), next(sides)) if names else None


def _versions(libraries: Mapping[str, str]) -> str:
    return " ".join(f"{name} {version}" for name, version in libraries.items())


def _cut(text: str) -> str:
    """Of the sender's choice: short enough that the rest of the line is seen."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

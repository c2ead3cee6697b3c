"""Verifies a fleet: the records of every node's sessions, its own ledger, and that no two nodes are one.

Whoever sells a cluster could measure its best node, and show it as all of them. The slices of two runs never have the
same lengths, so copies are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from milabench_ng.fleet.bundling import OpenedFleet
from milabench_ng.fleet.folder import NODES, PACKED, FleetFolder, NodeSession
from milabench_ng.fleet.ledger import Collected, digest_of
from milabench_ng.fleet.network.meetings import MEETINGS, last_held, meeting_digest
from milabench_ng.fleet.nodes import SCREEN, NodeName, SessionName, shared_with
from milabench_ng.fleet.ran_profile import RanProfile
from milabench_ng.fleet.stated_summary import unlike_its_records
from milabench_ng.fleet.summaries import kept_content, workers
from milabench_ng.model.errors import InputError
from milabench_ng.verification.checks.check_files import signature_finding
from milabench_ng.verification.findings import Verification
from milabench_ng.verification.folder_files import sha256_of
from milabench_ng.verification.signing import check
from milabench_ng.verification.verified_results import Demands, check_results

_MOST_COPIES = 20
"""So many copies are named."""


class VerifiedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in one session of one node."""

    node: NodeName
    session: SessionName
    verification: Verification | None
    problem: str = ""
    """Why it cannot be verified."""
    misstated: tuple[str, ...] = ()
    """What the manifest or ledger of the fleet or the node's summary says and its records do not."""

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return self.verification is not None and self.verification.passed and not self.misstated


class FleetVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a fleet."""

    source: str
    signed: str
    """Whether anybody vouches for it."""
    sessions: tuple[VerifiedSession, ...]
    missing: tuple[NodeName, ...]
    """Nodes without results of the screen."""
    problems: tuple[str, ...]
    """What is wrong with the fleet as a whole."""

    @property
    def passed(self) -> bool:
        """Whether no session breaks a rule, and nothing is wrong with the whole. A lost node breaks none."""
        return bool(self.sessions) and not self.problems and all(one.passed for one in self.sessions)


def verify_fleet(there: OpenedFleet, demands: Demands) -> FleetVerification:
    """Verify every session, and what they are together. A signature is over all of them."""
    fleet = there.fleet
    if fleet.going_on:
        raise InputError(f"{there.source}: another mnb works on this fleet. Verify it when it has ended")
    signer = check(there.packing_bytes, there.signature, demands.allowed_signers)
    signature = signature_finding(signer, demands.rules, packed=bool(there.packing_bytes))
    demands = demands.of_the_unsigned()
    owners: dict[str, str] = {}
    copied: dict[str, None] = {}
    found: list[VerifiedSession] = []
    known, asked = fleet.collected, RanProfile.asked(fleet.manifest)
    collected = [known.get((one.node, one.session)) for one in fleet.sessions]
    with workers(len(fleet.sessions)) as each:
        for verified, traits in each(partial(_checked, demands, asked), fleet.sessions, collected):
            found.append(verified)
            copied |= dict.fromkeys(copies(f"{verified.node} {verified.session}", traits, owners))
    screened = {one.node for one in found if one.session == SCREEN}
    return FleetVerification(
        source=there.source,
        signed=signer.words,
        sessions=tuple(found),
        missing=tuple(node for node in fleet.manifest.nodes if node not in screened),
        problems=(
            *there.damage,
            *(signature.reasons if signature.result == "fail" else ()),
            *_of_the_whole(fleet, found),
            *list(copied)[:_MOST_COPIES],
        ),
    )


def _checked(
    demands: Demands, asked: RanProfile, session: NodeSession, collected: Collected | None
) -> tuple[VerifiedSession, frozenset[str]]:
    stated = kept_content(session, collected)
    one = VerifiedSession(
        node=session.node,
        session=session.session,
        verification=None,
        misstated=tuple(_other_than_collected(session, collected, stated)),
    )
    try:
        found = check_results(str(session.path), demands)
    except InputError as error:
        return msgspec.structs.replace(one, problem=str(error)), frozenset()
    told = () if stated is None else tuple(unlike_its_records(stated, found.summary))
    other = RanProfile.of(found.summary).unlike(asked)
    return (
        msgspec.structs.replace(
            one,
            verification=found.verification,
            problem="" if found.verification is not None else "there is no run.json",
            misstated=(*one.misstated, *told, *([other] if other else ())),
        ),
        found.traits,
    )


def _other_than_collected(session: NodeSession, collected: Collected | None, stated: bytes | None) -> Iterator[str]:
    """What of a session is not what the fleet's ledger says; ``stated``: its summary, if that is."""
    if collected is None:
        yield "fleet.jsonl does not say that it was collected"
        return
    if collected.ledger_sha256 != digest_of(session.read_ledger()):
        yield "its ledger is not the one that was collected"
    if session.path.name.endswith(PACKED) and collected.sha256 and collected.sha256 != sha256_of(session.path):
        yield "its packed folder is not the one that was collected"
    if collected.summary_sha256 and stated is None:
        yield "its summary is not the one that was collected"


def copies(name: str, traits: Iterable[str], owners: dict[str, str]) -> Iterator[str]:
    """Of which other sessions it is a copy; see `shared_with`."""
    others = shared_with(name, traits, owners)
    yield from (f"{name} is a copy of {other}: they have slices of the same lengths, or one run id" for other in others)


def _of_the_whole(fleet: FleetFolder, found: Iterable[VerifiedSession]) -> Iterator[str]:
    """What breaks the fleet's ledger, what it does not say of the results, and what does not belong there."""
    yield from (f"fleet.jsonl: {problem}" for problem in fleet.ledger.problems)
    yield from (f"{one.node} {one.session}: {why}" for one in found for why in one.misstated)
    held = last_held(fleet.ledger.events)
    for meeting in MEETINGS:
        if (held[meeting].sha256 if meeting in held else "") != meeting_digest(fleet.path, meeting):
            yield f"network/{meeting}.jsonl is not what fleet.jsonl says"
    for name in fleet.strangers:
        packed = f"{NODES}/{name}{PACKED}"
        of_fleet = f"lies beside {packed}, which is the fleet's" if (fleet.path / packed).is_file() else ""
        yield f"{NODES}/{name} {of_fleet or 'belongs to no node of the fleet'}"

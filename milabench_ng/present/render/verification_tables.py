"""A verification as tables; the format modules lay them out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from milabench_ng.fleet.verifying import FleetVerification, VerifiedSession
from milabench_ng.model.plain import names_of
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import Fact, Tone, toned
from milabench_ng.present.render.sections import Document, Facts, Heading, Part, Section, facts, table
from milabench_ng.verification.findings import Doubted, Ruling, Verification

_OF_LAUNCH = re.compile(r"(\S+ J\d+\.\d+[a-z]?): (.*)", re.DOTALL)
"""What begins with the name of a launch (`ReadRecord.name`)."""
_SHOWN = 5
"""How many reasons are shown per rule; CSV and JSON have all of them."""
_TITLES = {
    "recomputed": "Recomputed: checked from the raw data (does not prove that it was measured)",
    "self-reported": "Self-reported: stated by the node about itself",
    "witness": "Witnessed: confirmed by a named person",
    "open": "Not checkable from these files",
}
_NAMES = {"ledger head": "latest ledger hash", "passed over": "ignored files", "twins": "synthetic datasets"}

Row = tuple[str, ...]


def verification_document(found: Verification) -> Document:
    """The verdict first; the rules by what they rest on, then the doubts."""
    return Document(
        title="mnb verify",
        parts=tuple(_parts(found)),
        table=_table(found),
        aside=(verdict_fact(found),),
        whole={"schema": 1, "passed": found.passed, "verdict": found.sentence, **msgspec.structs.asdict(found)},
    )


def fleet_verification_document(found: FleetVerification) -> Document:
    """The verdict first; what is wrong with the whole; a row for each session that fails, or has doubts."""
    bad = sum(not one.passed for one in found.sessions)
    of_whole = f", and the fleet as a whole does not: {counted(len(found.problems), 'problem')}"
    told = [
        Fact(
            "verdict",
            f"{'PASS' if found.passed else 'FAIL'}: {len(found.sessions) - bad} of "
            f"{counted(len(found.sessions), 'session')} of nodes pass{of_whole if found.problems else ''}",
            "good" if found.passed else "bad",
        ),
        Fact("source", f"{found.source} ({found.signed})"),
        *(Fact("problem", problem, "bad") for problem in found.problems),
    ]
    if found.missing:
        told.append(Fact("no results", f"{counted(len(found.missing), 'node')}: {names_of(found.missing, _NAMED)}"))
    every = table("sessions", [_session_row(one) for one in found.sessions], *_SESSION)
    rows = [
        _session_row(one) for one in found.sessions if not one.passed or (one.verification and one.verification.doubts)
    ]
    parts: tuple[Part, ...] = (Facts(facts=tuple(told)), *([table("", rows, *_SESSION)] if rows else ()))
    whole = {"schema": 1, "passed": found.passed, **msgspec.structs.asdict(found)}
    return Document(title="mnb verify", parts=parts, table=every, aside=tuple(told), whole=whole)


def _session_row(one: VerifiedSession) -> Row:
    found = one.verification
    if found is None:
        return one.node, one.session, "FAIL", "", "", one.problem
    broken = ", ".join(ruling.id for ruling in found.having("fail"))
    doubts = ", ".join(doubt.name for doubt in found.doubts)
    ruled = (reason for ruling in found.having("fail") for reason in told_once(ruling.reasons)[:1])
    return (
        one.node,
        one.session,
        "pass" if one.passed else "FAIL",
        broken,
        doubts,
        "; ".join((*one.misstated, *ruled)),
    )


def verdict_fact(found: Verification) -> Fact:
    tone: Tone = "bad" if not found.passed else "fair" if found.doubts or found.marks else "good"
    return Fact("verdict", found.sentence, tone)


def ruling_section(title: str, rulings: Iterable[Ruling], notes: tuple[str, ...] = ()) -> Section:
    """A row for each rule, and one for each reason below it."""
    rows = (row for ruling in rulings for row in _ruling(ruling))
    return table(title, rows, "rule", _RESULT, _REQUIREMENT, notes=notes)


def _parts(found: Verification) -> Iterator[Part]:
    yield Facts(facts=(verdict_fact(found), *facts("", [("source", found.source), *_named(found.facts)]).facts))
    for part, title in _TITLES.items():
        if asked := [ruling for ruling in found.rulings if part == _part(ruling)]:
            yield ruling_section(title, asked)
    if found.doubts:
        rows = (row for doubt in found.doubts for row in _doubt(doubt))
        yield table("Doubts: unusual, but no proof", rows, "doubt", _RESULT, "observation")
    if off := ", ".join(ruling.id for ruling in found.having("not required")):
        yield facts("", [("not required", off)])


def _named(told: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The facts by the names that people read; JSON keeps its keys."""
    return ((_NAMES.get(name, name), value) for name, value in told.items())


_RESULT = Heading("result", tone=toned({"FAIL": "bad", "open": "fair", "doubt": "fair"}))
_REQUIREMENT = Heading("requirement", key="what is asked")
_NAMED = 8
_SESSION = ("node", "session", _RESULT, "broken rules", "doubts", Heading("reasons", words=60))


def _part(ruling: Ruling) -> str:
    """The title that it is listed under."""
    return ruling.result if ruling.result in ("open", "not required") else ruling.basis


def _ruling(ruling: Ruling) -> Iterator[Row]:
    yield ruling.id, "FAIL" if ruling.result == "fail" else ruling.result, ruling.title
    yield from _reasons(ruling.reasons)


def _doubt(doubt: Doubted) -> Iterator[Row]:
    yield doubt.name, _word(doubt), doubt.title
    yield from _reasons(doubt.reasons)
    yield "", "", f"{doubt.honest} of {doubt.corpus} honest results show it. What to do: {doubt.ask}"


def _word(doubt: Doubted) -> str:
    return "FAIL" if doubt.refused else "doubt"


def _reasons(reasons: Sequence[str]) -> Iterator[Row]:
    told = told_once(reasons)
    yield from (("", "", f"- {reason}") for reason in told[:_SHOWN])
    if len(told) > _SHOWN:
        yield "", "", f"- and {len(told) - _SHOWN} more (--format json lists all)"


def told_once(reasons: Sequence[str]) -> list[str]:
    """The reasons, with one line for those that differ only in the launch that they name."""
    same: dict[str, list[str]] = {}
    for reason in reasons:
        found = _OF_LAUNCH.fullmatch(reason)
        same.setdefault(found[2] if found else reason, []).append(found[1] if found else "")
    return [
        what if not names[0] else f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {what}"
        for what, names in same.items()
    ]


def _table(found: Verification) -> Section:
    """A row for each rule and each doubt, with all its reasons, in the words of JSON."""
    rows: list[tuple[str, ...]] = [
        (one.id, one.result, one.basis, one.title, "; ".join(one.reasons)) for one in found.rulings
    ]
    rows += [
        (one.name, "fail" if one.refused else "doubt", "doubt", one.title, "; ".join(one.reasons))
        for one in found.doubts
    ]
    return table("rules", rows, "rule", "result", Heading("basis", key="rests on"), _REQUIREMENT, "reasons")

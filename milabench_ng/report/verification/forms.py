"""Output formats of a verification, for people and programs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal, TextIO

import msgspec

from milabench_ng.plain import plain, printed_json
from milabench_ng.report.verification.findings import Doubted, Ruling, Verification

RulingForm = Literal["table", "json"]

_OF_LAUNCH = re.compile(r"(\S+ J\d+\.\d+[a-z]?): (.*)", re.DOTALL)
"""What begins with the name of a launch (`evidence.StoredRecord.name`)."""
_HEAD = re.compile(r" {7}- |  [\w-]+ +\w+ +|\S+ {2,}|[\w ]{12} ")
"""What stands before the text of a line: that wraps below itself."""
_SHOWN = 5
"""How many reasons are shown per rule; JSON has all of them."""
_HEADINGS = {
    "recomputed": "recomputed: follows from the slices, or cryptographic; not that anything was measured",
    "self-reported": "self-reported: what the node said of itself",
    "witness": "witnessed: what somebody says to have seen",
    "unknown": "not checkable: with these files, or with any",
}
_WORDS = {"pass": "pass", "fail": "FAIL", "unknown": "open"}


def write_verification(found: Verification, form: RulingForm, stream: TextIO, width: int) -> None:
    """Write ``found`` to ``stream``; lines of a table wrap at ``width`` characters."""
    if form == "json":
        stream.write(_json(found))
        return
    for line in _lines(found):
        stream.write(f"{_fitted(line, width)}\n")


def _fitted(line: str, width: int) -> str:
    """The line, wrapped below its text; an empty line before it stays."""
    if line.startswith("\n"):
        return f"\n{_fitted(line[1:], width)}"
    head = _HEAD.match(line)
    below = " " * (head.end() if head else 0)
    return textwrap.fill(line, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)


def _json(found: Verification) -> str:
    whole = {"schema": 1, "passed": found.passed, "verdict": found.sentence, **msgspec.structs.asdict(found)}
    return printed_json(whole)


def _lines(found: Verification) -> Iterator[str]:
    yield f"verdict      {plain(found.sentence)}"
    yield f"source       {plain(found.source)}"
    yield from (f"{name.ljust(12)} {plain(text)}" for name, text in found.facts.items())
    for part, heading in _HEADINGS.items():
        asked = [ruling for ruling in found.rulings if part == _part(ruling)]
        if asked:
            yield f"\n{heading}"
        for ruling in asked:
            yield from _ruling(ruling)
    if found.doubts:
        yield "\ndoubts: unusual, and no proof of anything"
    for doubt in found.doubts:
        yield from _doubt(doubt)
    off = ", ".join(ruling.id for ruling in found.having("off"))
    if off:
        yield f"\nnot demanded: {off}"


def _part(ruling: Ruling) -> str:
    """The heading that it is listed under."""
    return ruling.result if ruling.result in ("unknown", "off") else ruling.basis


def _ruling(ruling: Ruling) -> Iterator[str]:
    yield f"  {ruling.id.ljust(4)} {_WORDS[ruling.result].ljust(5)} {ruling.title}"
    yield from _reasons(ruling.reasons)


def _doubt(doubt: Doubted) -> Iterator[str]:
    word = "FAIL" if doubt.refused else "doubt"
    seen = f"{doubt.honest} of {doubt.corpus} honest results show it"
    yield f"  {doubt.name} {word} {doubt.title} ({seen}); {doubt.ask}"
    yield from _reasons(doubt.reasons)


def _reasons(reasons: Sequence[str]) -> Iterator[str]:
    told = told_once(reasons)
    yield from (f"       - {reason}" for reason in told[:_SHOWN])
    if len(told) > _SHOWN:
        yield f"       - and {len(told) - _SHOWN} more (all of them: --format json)"


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

"""What each rule finds, and the verdict of all rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from milabench_ng.plain import plain

Basis = Literal["recomputed", "self-reported", "witness"]
"""What a rule rests on. recomputed: numbers that follow from each other, and cryptography, which anyone can repeat (it
does not show that anything was measured); self-reported: what the node said about itself, which its owner could forge;
witness: what no file can show and a person must have seen."""

RulingResult = Literal["pass", "fail", "unknown", "off"]
"""unknown: the available data cannot decide it; off: the rules do not demand it."""


class Finding(msgspec.Struct, frozen=True):
    """What one rule found, and why."""

    result: RulingResult
    reasons: tuple[str, ...] = ()


OFF = Finding("off")


def judged(reasons: Iterable[str]) -> Finding:
    """A failure if there is any reason for one, else a pass."""
    found = tuple(dict.fromkeys(plain(reason) for reason in reasons))
    return Finding("fail" if found else "pass", found)


def unknown(why: str) -> Finding:
    """The finding of a rule that cannot be checked, for the reason ``why``."""
    return Finding("unknown", (plain(why),))


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's finding, with its id and what it demands."""

    id: str
    title: str
    basis: Basis
    result: RulingResult
    reasons: tuple[str, ...]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """All findings on one result folder or bundle."""

    source: str
    rules: str
    """The name of the rules."""
    rulings: tuple[Ruling, ...]
    signed: str
    """Whether it is signed, and by whom, in words."""
    facts: dict[str, str]
    """Values to compare with what was announced: hashes, scores, the signer."""

    def having(self, result: RulingResult) -> tuple[Ruling, ...]:
        """The rulings with that result."""
        return tuple(ruling for ruling in self.rulings if ruling.result == result)

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return not self.having("fail")

    @property
    def _origin(self) -> str:
        return f" of {self.rules!r}" if self.rules else ""

    @property
    def sentence(self) -> str:
        """The verdict in one line: how many rules it is of, what it leaves open, and whether anybody vouches for it."""
        broken, open_ = self.having("fail"), self.having("unknown")
        cannot = f"; not checkable: {', '.join(ruling.id for ruling in open_)}" if open_ else ""
        limits = f"{len(self.having('off'))} not asked; {self.signed}{cannot}"
        judged = len(broken) + len(self.having("pass"))
        if not broken:
            return f"PASS of {judged} rules{self._origin}; {limits}"
        named = "; ".join(f"{ruling.id} {ruling.reasons[0]}" for ruling in broken[:3])
        more = f"; and {len(broken) - 3} more" if len(broken) > 3 else ""
        ids = ", ".join(ruling.id for ruling in broken)
        return f"FAIL of {judged} rules{self._origin}: {ids} broken ({named}{more}); {limits}"

"""What a rule finds, and what all rules together say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from milabench_ng.plain import plain

Basis = Literal["proven", "self-reported", "witness"]
"""On what a rule rests. proven: recomputed or cryptographic, wherever it is done again; self-reported: what the node
said of itself, which its owner could forge; witness: what no file can show, somebody must have seen it."""

RulingResult = Literal["pass", "fail", "unknown", "off"]
"""unknown: it cannot be checked with what there is; off: nobody demands it."""


class Finding(msgspec.Struct, frozen=True):
    """What one rule found, and why."""

    result: RulingResult
    reasons: tuple[str, ...] = ()


OFF = Finding("off")


def judged(reasons: Iterable[str]) -> Finding:
    """A failure where there is any reason for one, else a pass."""
    found = tuple(dict.fromkeys(plain(reason) for reason in reasons))
    return Finding("fail" if found else "pass", found)


def unknown(why: str) -> Finding:
    """It cannot be checked, for this reason."""
    return Finding("unknown", (plain(why),))


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """The finding of a rule with the rule's id and what it demands."""

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
    facts: dict[str, str]
    """What the reader may want to compare with what was announced: hashes, scores, who signed."""

    def having(self, result: RulingResult) -> tuple[Ruling, ...]:
        """The rulings with that result."""
        return tuple(ruling for ruling in self.rulings if ruling.result == result)

    @property
    def passed(self) -> bool:
        """No rule is broken."""
        return not self.having("fail")

    @property
    def _origin(self) -> str:
        return f" of {self.rules!r}" if self.rules else ""

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        broken, open_ = self.having("fail"), self.having("unknown")
        held = len(self.having("pass"))
        cannot = f"; not checkable: {', '.join(ruling.id for ruling in open_)}" if open_ else ""
        if not broken:
            return f"PASS ({held} rules{self._origin} hold{cannot})"
        named = "; ".join(f"{ruling.id} {ruling.reasons[0]}" for ruling in broken[:3])
        more = f"; and {len(broken) - 3} more" if len(broken) > 3 else ""
        return f"FAIL ({', '.join(ruling.id for ruling in broken)}{self._origin} broken: {named}{more}{cannot})"

"""What each rule finds, and the verdict of all rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from milabench_ng.model.plain import plain
from milabench_ng.model.units import counted

Basis = Literal["recomputed", "self-reported", "witness"]
"""What a rule rests on. recomputed: numbers that follow from each other, and cryptography, which anyone can repeat (it
does not show that anything was measured); self-reported: what the node said about itself, which its owner could forge;
witness: what no file can show and a person must have seen."""

RulingResult = Literal["pass", "fail", "open", "not required"]
"""open: the available data cannot decide it; not required: not asked by the rules."""


class Finding(msgspec.Struct, frozen=True):
    """What one rule found, and why."""

    result: RulingResult
    reasons: tuple[str, ...] = ()


OFF = Finding("not required")


def judged(reasons: Iterable[str]) -> Finding:
    """A failure if there is any reason for one, else a pass."""
    found = tuple(dict.fromkeys(plain(reason) for reason in reasons))
    return Finding("fail" if found else "pass", found)


def unknown(why: str) -> Finding:
    """The finding of a rule that cannot be checked, for the reason ``why``."""
    return Finding("open", (plain(why),))


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's finding, with its id and what it demands."""

    id: str
    title: str
    basis: Basis
    result: RulingResult
    reasons: tuple[str, ...]


class Doubted(msgspec.Struct, frozen=True, kw_only=True):
    """What is unusual in the results, how often honest ones show it, and what to ask of the vendor."""

    name: str
    title: str
    reasons: tuple[str, ...]
    honest: int
    """Of ``corpus`` folders that are known to be honest, so many show it."""
    corpus: int
    ask: str
    refused: bool
    """Whether the buyer's rules refuse it."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """All findings on one result folder or bundle."""

    source: str
    rules: str
    """The name of the rules."""
    rulings: tuple[Ruling, ...]
    doubts: tuple[Doubted, ...] = ()
    """What is unusual; it breaks nothing, unless the rules refuse it."""
    marks: tuple[str, ...] = ()
    """Why the launches are not comparable, in words; the rules may accept it."""
    excess: str = ""
    """How launches fail more often than a node may, if the rules set no limit of their own."""
    signed: str
    """Whether it is signed, and by whom, in words."""
    facts: dict[str, str]
    """Values to compare with what was announced: hashes, scores, the signer."""

    def having(self, result: RulingResult) -> tuple[Ruling, ...]:
        return tuple(ruling for ruling in self.rulings if ruling.result == result)

    @property
    def passed(self) -> bool:
        """Whether no rule is broken, and there is no doubt that the rules refuse."""
        return not self.having("fail") and not any(doubt.refused for doubt in self.doubts)

    @property
    def verdict(self) -> str:
        """The verdict with what it rests on first, and who vouches for it."""
        return f"{self._told(reasons=1)}. {self._signed}"

    @property
    def sentence(self) -> str:
        """The verdict in one line: how many rules it is of, what it leaves open, and whether anybody vouches for it."""
        open_, off = self.having("open"), self.having("not required")
        parts = (
            self._told(reasons=3),
            f"Rule set: {self.rules}" if self.rules else "",
            self._signed,
            f"Not checkable: {', '.join(ruling.id for ruling in open_)}" if open_ else "",
            f"Not required: {counted(len(off), 'rule')}" if off else "",
            f"Also {self._doubted}" if self.doubts and not self.passed else "",
        )
        return ". ".join(filter(None, parts))

    def _told(self, *, reasons: int) -> str:
        kept, broken = len(self.having("pass")), len(self.having("fail"))
        beside = f" with {self._doubted}" if self.doubts else ""
        if not self.passed:
            verdict = f"FAIL: {broken} of {counted(kept + broken, 'rule')} broken ({', '.join(self._broken)})"
        elif self.marks or self.excess:
            but = "; ".join(filter(None, (self.excess, self._marked)))
            verdict = f"RULES MET (all {kept} checkable){beside}, but {but}"
        else:
            verdict = f"PASS{beside}: all {counted(kept, 'checkable rule')} met"
        marked = self._marked if not self.passed else ""
        return ". ".join(filter(None, (verdict, self._reasons(reasons), marked)))

    @property
    def _signed(self) -> str:
        return self.signed[:1].upper() + self.signed[1:]

    @property
    def _doubted(self) -> str:
        return f"{counted(len(self.doubts), 'doubt')} ({', '.join(doubt.name for doubt in self.doubts)})"

    @property
    def _marked(self) -> str:
        """The first three marks."""
        more = f", and {len(self.marks) - 3} more" if len(self.marks) > 3 else ""
        return f"NOT COMPARABLE: {', '.join(self.marks[:3])}{more}" if self.marks else ""

    @property
    def _broken(self) -> dict[str, tuple[str, ...]]:
        """What a failure rests on: the reasons of broken rules and refused doubts."""
        broken = {ruling.id: ruling.reasons for ruling in self.having("fail")}
        return broken | {doubt.name: doubt.reasons for doubt in self.doubts if doubt.refused}

    def _reasons(self, most: int) -> str:
        """The first reason of the first ``most``, each rule by its number and its words."""
        titles = {ruling.id: f"{ruling.id} ({ruling.title})" for ruling in self.rulings}
        told = [f"{titles.get(name, name)}: {reasons[0]}" for name, reasons in self._broken.items()]
        return "; ".join((*told[:most], *([f"and {len(told) - most} more"] if len(told) > most else [])))

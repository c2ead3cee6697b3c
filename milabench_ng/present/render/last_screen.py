"""The last screen of a run: verdict, score, validity and what to do, in twelve lines. Pure.

What finds no room is counted, and stands in the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
from rich.cells import cell_len
from rich.text import Text

from milabench_ng.model.plain import plain
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import Fact
from milabench_ng.present.render.first_screen import FirstScreen, first_screen
from milabench_ng.present.render.fitting import UNLIMITED
from milabench_ng.present.render.terminal import fact_lines
from milabench_ng.report.report import Report

LINES = 12
"""Half of a terminal of 80 x 24."""
_MOST = 2
"""Lines of a finding."""
_NAMES = len("Verdict")
_KNOWN = ("Node", "Parts")
"""Answers that nobody waits for at the end of a run."""
_SOUND = Fact("Verdict", "no issues found", "good")


def last_screen(report: Report, width: int) -> Text:
    """The last screen of a run, for a terminal of ``width`` columns: the most important first, until it is full."""
    screen = first_screen(report)
    rules = [_short(one, width) for one in screen.rules]
    verdict, *warnings = _findings(screen, width)
    *answers, valid = (answer.fact for answer in screen.answers if not answer.name.startswith(_KNOWN))
    look = [_short(Fact("" if n else "Look at", one.text, one.tone), width) for n, one in enumerate(screen.look)]
    optional = [*answers, *warnings, *look]
    for count in range(len(optional), -1, -1):
        kept = optional[:count]
        above = [one for one in (*warnings, *answers) if one in kept]
        below = [one for one in look if one in kept]
        facts = [*rules, verdict, *above, valid, *below, *_commands(report, screen, len(optional) - count)]
        if _height(facts, width) <= LINES:
            break
    return fact_lines(facts, width)


def _findings(screen: FirstScreen, width: int) -> list[Fact]:
    """The verdict is the worst that was found; the others follow below it, what is only worth a note last."""
    told = [Fact("", f"{fact.name}: {fact.text}", fact.tone) for fact in screen.alarms if fact.tone != "plain"]
    if not told:
        return [_SOUND]
    return [_short(one, width) for one in (msgspec.structs.replace(told[0], name="Verdict"), *told[1:])]


def _commands(report: Report, screen: FirstScreen, hidden: int) -> Iterable[Fact]:
    """What to do; ``hidden`` findings had no room."""
    yield Fact("results", report.source)
    yield from screen.step
    more = f", with {counted(hidden, 'more finding')}" if hidden else ""
    yield Fact("details", f"{report.command} --full{more}", "faint")


def _height(facts: Sequence[Fact], width: int) -> int:
    """The lines that statements take on the terminal, which breaks long words itself."""
    lines = fact_lines(facts, width, least=_NAMES).plain.splitlines()
    return sum(max(1, math.ceil(cell_len(line) / width)) for line in lines)


def _short(fact: Fact, width: int) -> Fact:
    """A finding in at most `_MOST` lines."""
    words = plain(fact.text).split(" ")
    if width >= UNLIMITED or _height([fact], width) <= _MOST:
        return fact
    for count in range(len(words) - 1, 0, -1):
        cut = msgspec.structs.replace(fact, text=f"{' '.join(words[:count])} ...")
        if _height([cut], width) <= _MOST:
            return cut
    return fact

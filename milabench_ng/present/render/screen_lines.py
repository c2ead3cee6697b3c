"""The first screen of a report as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from milabench_ng.model.plain import plain
from milabench_ng.present.render.cells import Answer, Fact
from milabench_ng.present.render.first_screen import BY_BOTTLENECK, FirstScreen, KindRatio
from milabench_ng.present.render.fitting import TOGETHER
from milabench_ng.present.render.terminal import STYLES, fact_lines

_LINE = 100
"""Where the date ends on a wide terminal."""
_BAR = 8
_GAP = "   "


def print_screen(screen: FirstScreen, console: Console, width: int) -> None:
    """Write the first screen: title and date, rules, alarms, what to do next, answers, where to look, commands."""
    title, edge = plain(screen.title), min(width, _LINE)
    room = edge - cell_len(title) - cell_len(screen.when)
    separated = f"{title}{' ' * room}" if room >= len(_GAP) else f"{title}\n"
    console.print(Text.assemble((separated, STYLES["strong"]), screen.when))
    if screen.rules:
        console.print(fact_lines(screen.rules, width))
    print_alarms(screen.alarms, console, width)
    console.print("", fact_lines([*screen.step, *_told(screen.answers, width)], width), sep="\n")
    rest = [Fact("" if place else "Look at", fact.text, fact.tone) for place, fact in enumerate(screen.look)]
    rest += [Fact(BY_BOTTLENECK, _GAP.join((screen.against, _bars(screen.kinds))))] if screen.kinds else []
    if rest:
        names = max(len(answer.name) for answer in screen.answers)
        console.print("", fact_lines(rest, width, least=names), sep="\n")
    if screen.commands:
        console.print("", fact_lines(screen.commands, width), sep="\n")


def print_alarms(alarms: Sequence[Fact], console: Console, width: int) -> None:
    """Write why the numbers may not be what they seem, if anything says so."""
    if alarms:
        marked = [Fact(f"! {fact.name}", fact.text, fact.tone) for fact in alarms]
        console.print(fact_lines(marked, width, named=True))


def _told(answers: Sequence[Answer], width: int) -> list[Fact]:
    """The answers as statements: their second parts below each other where the width allows it, else as they wrap."""
    names = max(len(answer.name) for answer in answers) + len(_GAP)
    first = max((len(answer.parts[0]) for answer in answers if answer.parts[1:]), default=0)
    aligned = [_GAP.join((answer.parts[0].ljust(first), *answer.parts[1:])).rstrip() for answer in answers]
    if max(map(cell_len, aligned)) + names > width:
        aligned = [_GAP.join(_whole(part, width - names) for part in answer.parts) for answer in answers]
    return [Fact(answer.name, line, answer.tone) for answer, line in zip(answers, aligned, strict=True)]


def _whole(part: str, room: int) -> str:
    """A part that is not broken, if it has room in a line."""
    return plain(part).replace(" ", TOGETHER) if len(part) <= room else part


def _bars(kinds: Sequence[KindRatio]) -> str:
    longest = max(max(kind.ratio for kind in kinds), 1.0)
    bars = ((kind, "█" * max(1, round(_BAR * kind.ratio / longest))) for kind in kinds)
    return _GAP.join(f"{plain(kind.name)} {kind.ratio:.2f} {bar}" for kind, bar in bars)

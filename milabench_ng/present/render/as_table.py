"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from milabench_ng.model.plain import plain
from milabench_ng.present.render.alarms import alarms_of_launches
from milabench_ng.present.render.cells import Answer, Fact
from milabench_ng.present.render.columns import all_columns, columns, section_of_tests
from milabench_ng.present.render.first_screen import BY_BOTTLENECK, DETAILS, FirstScreen, KindRatio, first_screen
from milabench_ng.present.render.fitting import TOGETHER
from milabench_ng.present.render.sections import Facts, Section
from milabench_ng.present.render.statements import details, isolation_fact
from milabench_ng.present.render.tables import other_tables
from milabench_ng.present.render.terminal import STYLES, console_of, fact_lines, print_section, write_parts
from milabench_ng.report.report import Report

_ROWS_SHOWN = 20
_LINE = 100
"""Where the date ends on a wide terminal."""
_BAR = 8
_GAP = "   "


def write(report: Report, stream: TextIO, further: Sequence[Section] = (), *, full: bool = False) -> None:
    """Write ``report`` and ``further`` tables to ``stream``.

    Nothing is cut off: on a terminal, texts wrap and columns are left out.

    ``full``: leave no column and no row out; what does not fit side by side stands below.
    """
    console = console_of(stream)
    screen = first_screen(report)
    commands = tuple(one for one in screen.commands if not full or one.name != DETAILS)
    _print_screen(msgspec.structs.replace(screen, commands=commands), console)
    console.print()
    tests = section_of_tests(report, all_columns(report) if full else columns(report))
    print_section(_whole(tests) if full else tests, console, "--full shows all columns")
    others = (*other_tables(report), *further)
    for section in others:
        if full or not section.detail:
            console.print()
            print_section(_whole(section) if full else _brief(section), console)
    basis = tuple(details(report, charged=full))
    caveats = tuple(fact for fact in basis if fact.tone in ("fair", "bad"))
    if full or caveats:
        console.print()
        title, facts = ("Basis and caveats", basis) if full else ("Caveats", caveats)
        write_parts([Facts(title=title, facts=facts)], stream)
    if not full:
        left_out = [*(section.title for section in others if section.detail), "what the numbers rest on"]
        console.print()
        write_parts([Facts(facts=(Fact("--full", f"also prints {', '.join(left_out)}", "faint"),))], stream)
    write_isolation(report, stream)


def write_sections(sections: Sequence[Section], stream: TextIO) -> None:
    """Write tables one below the other, with all their rows and columns."""
    console = console_of(stream)
    for section in sections:
        console.print()
        print_section(_whole(section), console)


def write_isolation(report: Report, stream: TextIO) -> None:
    """Write how the tenants were isolated, if they were not."""
    if report.not_isolated:
        write_parts([Facts(facts=(isolation_fact(report),))], stream)


def write_alarms(report: Report, stream: TextIO) -> None:
    """Write why the launches may not be what they seem, above a table that has no first screen."""
    _print_alarms(alarms_of_launches(report), console_of(stream))


def _print_screen(screen: FirstScreen, console: Console) -> None:
    """Write the first screen: title and date, rules, alarms, what to do next, answers, where to look, commands."""
    title, width = plain(screen.title), console.width
    room = min(width, _LINE) - cell_len(title) - cell_len(screen.when)
    separated = f"{title}{' ' * room}" if room >= len(_GAP) else f"{title}\n"
    console.print(Text.assemble((separated, STYLES["strong"]), screen.when))
    if screen.rules:
        console.print(fact_lines(screen.rules, width))
    _print_alarms(screen.alarms, console)
    console.print("", fact_lines([*screen.step, *_told(screen.answers, width)], width), sep="\n")
    rest = [Fact("" if place else "Look at", fact.text, fact.tone) for place, fact in enumerate(screen.look)]
    rest += [Fact(BY_BOTTLENECK, _GAP.join((screen.against, _bars(screen.kinds))))] if screen.kinds else []
    if rest:
        names = max(len(answer.name) for answer in screen.answers)
        console.print("", fact_lines(rest, width, least=names), sep="\n")
    if screen.commands:
        console.print("", fact_lines(screen.commands, width), sep="\n")


def _print_alarms(alarms: Sequence[Fact], console: Console) -> None:
    """Write why the numbers may not be what they seem, if anything says so."""
    if alarms:
        marked = [Fact(f"! {fact.name}", fact.text, fact.tone) for fact in alarms]
        console.print(fact_lines(marked, console.width, named=True))


def _told(answers: Sequence[Answer], width: int) -> list[Fact]:
    """The answers as statements: their second parts below each other where the width allows it, else as they wrap."""
    names = max(len(answer.name) for answer in answers) + len(_GAP)
    first = max((len(answer.parts[0]) for answer in answers if answer.parts[1:]), default=0)
    aligned = [_GAP.join((answer.parts[0].ljust(first), *answer.parts[1:])).rstrip() for answer in answers]
    if max(map(cell_len, aligned)) + names > width:
        aligned = [_GAP.join(_unbroken(part, width - names) for part in answer.parts) for answer in answers]
    return [Fact(answer.name, line, answer.tone) for answer, line in zip(answers, aligned, strict=True)]


def _unbroken(part: str, room: int) -> str:
    """A part that is not broken, if it has room in a line."""
    return plain(part).replace(" ", TOGETHER) if len(part) <= room else part


def _bars(kinds: Sequence[KindRatio]) -> str:
    longest = max(max(kind.ratio for kind in kinds), 1.0)
    bars = ((kind, "█" * max(1, round(_BAR * kind.ratio / longest))) for kind in kinds)
    return _GAP.join(f"{plain(kind.name)} {kind.ratio:.2f} {bar}" for kind, bar in bars)


def _brief(section: Section) -> Section:
    """Its first rows."""
    hidden = len(section.rows) - _ROWS_SHOWN
    if hidden <= 0:
        return section
    notes = (f"... and {hidden} more (--full shows all)", *section.notes)
    return msgspec.structs.replace(
        section, rows=section.rows[:_ROWS_SHOWN], tones=section.tones[:_ROWS_SHOWN], notes=notes
    )


def _whole(section: Section) -> Section:
    """With no column that could be spared."""
    headings = tuple(msgspec.structs.replace(heading, spare=0) for heading in section.headings)
    return msgspec.structs.replace(section, headings=headings)

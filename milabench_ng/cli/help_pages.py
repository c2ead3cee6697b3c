"""What ``--help`` and ``--help-all`` print, wrapped once, to the width of the terminal."""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from cyclopts import App

from milabench_ng.cli.command_list import COMMANDS, first_paragraph, name_of

if TYPE_CHECKING:
    from cyclopts.argument import Argument

HELP_FLAGS = ("--help", "-h", "--help-all")
OWN = {"Arguments": "Arguments", "Parameters": "Options"}
"""Where a parameter is that names no group, as cyclopts and as the page call it: those that most people need."""
TYPES = {int: "INT", float: "FLOAT", Path: "PATH", str: "TEXT"}
WIDEST_LABEL = 22
"""Text begins on the line below a wider one."""
WIDEST_PAGE = 120

Groups = Mapping[str, Sequence["Argument"]]
Entries = Sequence[tuple[str, str]]
Sections = Iterator[tuple[str, Entries]]


def help_page(app: App, tokens: Sequence[str]) -> str | None:
    """The page that these words of a command line ask for; None if they ask for none, or name no command.

    A command that only has subcommands has nothing else to say.
    """
    import shutil  # whose compressors take 10 ms of every other command

    chain, apps, rest = app.parse_commands([token for token in tokens if token not in HELP_FLAGS])
    command, name = apps[-1], " ".join(("mnb", *chain))
    asked = not tokens or bool(set(HELP_FLAGS) & set(tokens))
    width = min(shutil.get_terminal_size().columns, WIDEST_PAGE)
    if command.default_command is None:
        sections = _subcommands(command) if chain else _all_commands(command)
        return None if rest else "\n".join(_commands_page(_paragraphs(command)[0], sections, name, width))
    if not asked:
        return None
    arguments = command.assemble_argument_collection(parse_docstring=True).filter_by(show=True)
    groups = {OWN.get(one.name, one.name): list(arguments.filter_by(group=one)) for one in arguments.groups}
    short = "--help-all" not in tokens and not groups.keys() <= set(OWN.values())
    page = _short_page if short else _whole_page
    return "\n".join(page(_usage(name, groups), _paragraphs(command), groups, width))


def _all_commands(app: App) -> Sections:
    """The commands by heading, and the options of ``mnb`` itself."""
    for title, functions in COMMANDS.items():
        yield title, [(name_of(function), first_paragraph(function)) for function in functions]
    options = [each for each in app if each.startswith("-") and each not in HELP_FLAGS]
    yield "Options", [(each, _paragraphs(app[each])[0]) for each in options]


def _subcommands(command: App) -> Sections:
    shown = [each for each in command if not each.startswith("-") and command[each].show]
    yield "Commands", [(each, _paragraphs(command[each])[0]) for each in shown]


def _commands_page(what: str, sections: Sections, name: str, width: int) -> Iterator[str]:
    yield f"Usage: {name} COMMAND\n"
    yield from _wrapped(what, width)
    for title, entries in sections:
        yield f"\n{title}:"
        yield from _entries(entries, width)
    yield ""
    yield from _wrapped(f"{name} COMMAND --help explains a command. --help-all explains all its options.", width)


def _short_page(usage: str, paragraphs: Sequence[str], groups: Groups, width: int) -> Iterator[str]:
    """What most people need, in a sentence each, and the names of all others."""
    yield usage
    yield from _wrapped(paragraphs[0], width)
    yield from (each for each in paragraphs if each.startswith("Example: "))
    yield ""
    own = itertools.chain.from_iterable(groups.get(title, ()) for title in OWN.values())
    yield from _entries([(_label(each), _first_sentence(each.parameter.help or "")) for each in own], width)
    yield "More options (see --help-all):"
    others = ((title, them) for title, them in groups.items() if title not in OWN.values())
    yield from _entries([(title, " ".join(each.name for each in them)) for title, them in others], width)


def _whole_page(usage: str, paragraphs: Sequence[str], groups: Groups, width: int) -> Iterator[str]:
    yield usage
    for text in paragraphs:
        yield ""
        yield from (text,) if text.startswith("Example: ") else _wrapped(text, width)  # to be copied
    for title, them in groups.items():
        yield f"\n{title}:"
        yield from _entries([(_label(each), _explained(each)) for each in them], width)


def _paragraphs(command: App) -> list[str]:
    """The paragraphs of a docstring before its parameters, each in one line."""
    text = inspect.cleandoc(str(command.help)).partition("\n\nParameters\n---")[0]
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def _usage(name: str, groups: Groups) -> str:
    options = " [OPTIONS]" if groups.keys() - {"Arguments"} else ""
    places = (each for each in itertools.chain.from_iterable(groups.values()) if each.index is not None)
    named = map(_place, places)
    return f"Usage: {name}{options} {' '.join(named)}".rstrip()


def _place(argument: Argument) -> str:
    """What stands in the line of usage for an argument: ``FOLDER``, ``[PROFILE]`` or ``FLAGS...``."""
    if argument.is_var_positional():
        return f"{_name(argument)}..."
    return _name(argument) if argument.required else f"[{_name(argument)}]"


def _name(argument: Argument) -> str:
    return argument.name.lstrip("-").upper() if argument.index is not None else " ".join(argument.names)


def _label(argument: Argument) -> str:
    """What one writes: ``PROFILE``, ``--full`` or ``--output -o PATH``."""
    if argument.index is not None or argument.is_flag():
        return _name(argument)
    several = "..." if get_origin(argument.hint) is tuple else ""
    return f"{_name(argument)} {'CHOICE' if argument.get_choices() else _type(argument.hint)}{several}"


def _type(hint: Any) -> str:
    """``PATH`` of ``Path | None`` and ``TEXT`` of ``tuple[str, ...]``."""
    return TYPES.get(hint, "") or next(filter(None, map(_type, get_args(hint))), "")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def _explained(argument: Argument) -> str:
    """The whole help, the choices, and the default if it says something."""
    default, choices = shown_default(argument.field_info.default), argument.get_choices()
    return " ".join(
        (
            *(argument.parameter.help or "").split(),
            *([f"[{', '.join(choices)}]"] if choices else ()),
            *([f"[default: {default}]"] if default else ()),
        )
    )


def shown_default(value: object) -> str | None:
    """What the help says of a default; nothing of those that are empty or off."""
    return str(value) if isinstance(value, str | int | float) and str(value) not in ("", "False") else None


def _entries(entries: Entries, width: int) -> Iterator[str]:
    """Labels, with their texts beside them."""
    column = 2 + min(WIDEST_LABEL, max((len(label) for label, _ in entries), default=0)) + 2
    for label, text in entries:
        first, *more = _wrapped(text, width - column) or [""]
        if len(label) + 4 > column:
            yield f"  {label}"
            label = ""
        yield f"  {label:<{column - 2}}{first}".rstrip()
        yield from (" " * column + line for line in more)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)

"""Says in one line what is wrong with a command line, and what to write instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import chain, pairwise

from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from milabench_ng.cli.command_list import FUNCTIONS, name_of
from milabench_ng.model.plain import names_of, plain, short
from milabench_ng.model.shipped import names
from milabench_ng.model.similar import did_you_mean


def explained(error: CycloptsError) -> str:
    """The error as all others of ``mnb`` are printed."""
    command = " ".join(("mnb", *(error.command_chain or ())))
    if isinstance(error, UnknownOptionError):
        return f"{command}: {_unknown(error, command)}"
    if isinstance(error, MissingArgumentError) and error.keyword is None and error.argument is not None:
        name = error.argument.field_info.name if error.argument.field_info.is_positional else error.argument.name
        said = f"{name.upper()} is missing"
        if not name.isidentifier():
            said = f"{name} is missing. {error.argument.parameter.help or ''}".rstrip(". ")
        return f"{command}: {said}. See the example in {command} --help"
    if isinstance(error, MissingArgumentError) and error.keyword is not None:
        return f"{command}: {_valueless(error.keyword, error.root_input_tokens or (), command)}"
    if isinstance(error, CoercionError) and error.token and error.token.keyword and error.target_type is float:
        return f"{command}: {error.token.keyword}: expected a number without a unit, got {short(error.token.value)!r}"
    if isinstance(error, CoercionError) and error.token and f"--{error.token.value}" in _options_of_one(command):
        value = plain(error.token.value)
        return f"{command}: {error.token.keyword} {value}: it has an option of its own. Write --{value}"
    if isinstance(error, UnusedCliTokensError):
        return f"{command}: {' '.join(map(plain, error.unused_tokens or ()))}: too many arguments. See {command} --help"
    if isinstance(error, UnknownCommandError):
        word = next(iter(error.unused_tokens or ()), "")
        if command == "mnb" and word in names("profiles"):
            return f"mnb: {is_a_profile(word)}"
        if command != "mnb" and word in map(name_of, FUNCTIONS):
            return f"{command}: {word} is a command of its own. Write {_said(('mnb', *(error.unused_tokens or ())))}"
        known = [] if error.app is None else list(error.app)
        if word.startswith("-"):
            meant = _flag_meant(word, known) or f". See {command} --help"
            return f"{command}: {plain(word)}: expected a command first{meant}"
        commands = [each for each in known if not each.startswith("-")]
        meant = did_you_mean(word, commands) or did_you_mean(f"--{word}", known)  # its own text would import all
        if not meant and command != "mnb" and error.app is not None:
            meant = f". Known: {', '.join(each for each in commands if error.app[each].show)}"
        return f"{command}: unknown command {short(repr(word))}{meant}. See {command} --help"
    return f"{command}: {plain(error)}"


def _flag_meant(word: str, known: Sequence[str]) -> str:
    """The option that stands without a command, or the command, that was meant by an option in place of a command."""
    if len(word) == 2:
        return next((f" (did you mean {each!r}?)" for each in known if each.startswith(f"-{word.lower()}")), "")
    return did_you_mean(word.lstrip("-"), [each for each in known if not each.startswith("-")]) or did_you_mean(
        word, [each for each in known if each.startswith("--")]
    )


def is_a_profile(word: str) -> str:
    """What is said where a profile is named and a command or a workload is expected."""
    return f"{word} is a profile. Run it with: mnb jobs {word}"


def _valueless(option: str, tokens: Sequence[str], command: str) -> str:
    """A number below 0 reads as an option, and no option takes one."""
    follows = next((after for before, after in pairwise(tokens) if before == option), "")
    if re.match(r"-\d", follows):
        return f"{option}: expected a value of at least 0, got {plain(follows)}"
    if follows == "-":
        return f"{option}: expected a name, got -. To write to the terminal, leave {option} out"
    return f"{option}: value missing. See {command} --help"


def _unknown(error: UnknownOptionError, command: str) -> str:
    """An option may also belong to the workload, and then it comes after ``--``."""
    option = (error.token.keyword or error.token.value).partition("=")[0]
    arguments = [argument for argument in error.argument_collection if argument.parse]
    known = list(chain.from_iterable(argument.names for argument in arguments))
    placed = [argument.field_info.name for argument in arguments if argument.field_info.is_positional]
    if len(option) == 2:  # one dash and a letter, which no workload has
        alike = " or ".join(name for name in known if re.match(f"-{re.escape(option)}(?!o-)", name))
        meant = f" (did you mean {alike}?)" if alike else ""
    elif option.lstrip("-").rstrip("s") in [name.rstrip("s") for name in placed]:
        word = option.lstrip("-").upper()
        value = _value(option, error) or word
        return f"{option}: {word} is named without an option. Write {command} {_said((value,))}"
    elif "--jobs" in known and option in _options_of("jobs"):
        value = _value(option, error)
        return f"{option} is of mnb jobs. Try --jobs {shlex.quote(_said((option, value) if value else (option,)))}"
    elif worded := _worded(option, known):
        meant = f" (did you mean {worded!r}?)"
    elif owner := next((one for one in arguments if option.lstrip("-") in (one.get_choices() or ())), None):
        meant = f". Write {owner.name} {option.lstrip('-')}"
    else:
        meant = did_you_mean(option, known) or _elsewhere(option, command, with_flags="flags" in placed)
    return f"unknown option {plain(option)}{meant or f'. See {command} --help'}"


def _worded(option: str, known: Sequence[str]) -> str:
    """The option that begins with ``option``, as ``--sessions`` with ``--session``, or has it as one of its words."""
    begun = [each for each in known if each.startswith(option)]
    return min(begun or (each for each in known if option.lstrip("-") in each.split("-")), key=len, default="")


def _elsewhere(option: str, command: str, *, with_flags: bool) -> str:
    """Whose option it is: a workload's, where the command takes those, or another command's; empty if nobody's."""
    from milabench_ng.model.builtin import read_builtin  # no other mistake needs it
    from milabench_ng.model.catalogue import normal_name

    known = {each.name for workload in read_builtin().values() for each in workload.options} if with_flags else set()
    if normal_name(option) in known:
        return f". Workload options go after --: {command} ... -- {plain(option)}"
    owners = [f"mnb {each}" for each in map(name_of, FUNCTIONS) if option in _options_of(each)]
    return f", which is an option of {names_of(owners, 3)}. See {command} --help" if owners else ""


def _options_of_one(command: str) -> frozenset[str]:
    """Of a command as it is typed; none of those that are part of another."""
    name = command.removeprefix("mnb ")
    return _options_of(name) if name in map(name_of, FUNCTIONS) else frozenset()


def _options_of(command: str) -> frozenset[str]:
    """None of commands that have commands of their own."""
    from milabench_ng.cli import app

    found = app[command]
    arguments = () if found.default_command is None else found.assemble_argument_collection()
    return frozenset(chain.from_iterable(argument.names for argument in arguments))


def _value(option: str, error: UnknownOptionError) -> str:
    """What an unknown option was given: the next word, unless that is an option, too."""
    given = [*(error.root_input_tokens or ()), ""]
    at = next(place for place, word in enumerate(given) if word.partition("=")[0] == option)
    _, equals, value = given[at].partition("=")
    return value if equals else "" if given[at + 1].startswith("-") else given[at + 1]


def _said(words: Sequence[str]) -> str:
    return short(shlex.join(words))

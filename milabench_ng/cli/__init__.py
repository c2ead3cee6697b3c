"""The ``mnb`` command: one file per subcommand."""

from __future__ import annotations

import io
import itertools
import os
import sys
from collections.abc import Sequence
from functools import reduce
from operator import or_
from types import NoneType
from typing import Any, get_args

import cyclopts

from milabench_ng import __version__
from milabench_ng.cli.broken_pipe import Remarks, until_unread
from milabench_ng.cli.command_list import COMMANDS, name_of
from milabench_ng.cli.help_pages import HELP_FLAGS, help_page, shown_default
from milabench_ng.cli.named_files import check_named
from milabench_ng.cli.other_characters import HANDLER
from milabench_ng.cli.wrong_usage import explained
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.files import no_current_folder
from milabench_ng.model.plain import plain_lines
from milabench_ng.model.signals import end, end_at_once, heed


def _typed(hint: Any, tokens: Sequence[cyclopts.Token]) -> Any:
    """What an option's words are, by its type without None: a default means not given, and no word says so.

    By itself cyclopts takes the words none and null for None wherever a type allows it.
    """
    types = get_args(hint)
    if NoneType in types:
        hint = reduce(or_, (one for one in types if one is not NoneType))
    return cyclopts.convert(hint, tokens)


app = cyclopts.App(
    name="mnb",
    help="Multi-tenant stress test for GPU nodes: one isolated worker per GPU, all running at once.",
    version=__version__,
    default_parameter=cyclopts.Parameter(
        negative_iterable=(),
        show_default=shown_default,  # for the reference
        converter=_typed,
    ),
    help_flags=HELP_FLAGS,
)
# By name, so that each command imports only what it needs.
for place, (heading, functions) in enumerate(COMMANDS.items()):
    group = cyclopts.Group(heading, sort_key=place)
    for function in functions:
        app.command(f"milabench_ng.cli.{function}:{function}", name=name_of(function), group=group)

app.register_install_completion_command(help="Install command completion for this shell.")


def main() -> None:
    """Run the command that the process was started with."""
    open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=HANDLER)
    told = open(2, "wb", closefd=False)  # noqa: SIM115  # as long as the process lives
    sys.stderr = Remarks(told, encoding=sys.stderr.encoding, errors=HANDLER, line_buffering=True)
    tokens = sys.argv[1:]
    if tokens and tokens[0] in app:
        app[tokens[0]]  # imported before signals raise
    heed(end)
    code = until_unread(lambda: call(tokens))
    heed(end_at_once)
    sys.exit(code)


def open_standard_streams() -> None:
    """Open /dev/null for what our parent process closed of descriptors 0, 1 and 2, for us and for all that we start.

    Otherwise the next file or socket would be opened there, and a worker's output would go into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115  # as long as the process lives


def call(tokens: Sequence[str]) -> int:
    """Run one command and return its exit code.

    0 all well, 1 a launch failed or a rule is broken, 2 bad input, 3 isolation unavailable, 4 inconclusive.
    `main` adds 141 for output whose reader has gone away, and 128 with its number for a signal.
    """
    own = list(itertools.takewhile(lambda token: token != "--", tokens))  # the rest is a workload's
    try:
        if "" in tokens:
            raise InputError(f"argument {tokens.index('') + 1} is empty. Is a shell variable unset?")
        gone = no_current_folder()
        if gone:
            raise InputError(gone)
        page = help_page(app, own)
        if page is not None:
            print(page)
            return 0
        command, given, _ = app.parse_args(list(tokens), exit_on_error=False, print_error=False)
        check_named(command, given.arguments)
        return int(command(*given.args, **given.kwargs) or 0)
    except cyclopts.CycloptsError as error:
        print(explained(error), file=sys.stderr)
        return 2
    except MnbError as error:
        print(f"mnb: {plain_lines(str(error))}", file=sys.stderr)
        return error.exit_code

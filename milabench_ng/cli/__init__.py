"""The ``mnb`` command: one file per subcommand."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import cyclopts

from milabench_ng import __version__
from milabench_ng.cli.unread import until_unread
from milabench_ng.errors import MnbError
from milabench_ng.plain import plain_lines

INTERRUPTED = 130

app = cyclopts.App(
    name="mnb",
    help="Multi-tenant stress test for GPU nodes: one fenced worker per GPU, all at the same moment.",
    version=__version__,
    help_format="plaintext",  # markdown takes a parser and a highlighter, a tenth of a second
)
FUNCTIONS = (
    "jobs",
    "run",
    "rerun",
    "prepare",
    "summary",
    "report",
    "bids",
    "baseline",
    "bundle",
    "stamp",
    "verify",
    "accept",
    "list_tests",
    "doctor",
    "schema",
)
# By name, so that each command imports only what it needs.
for function in FUNCTIONS:
    app.command(f"milabench_ng.cli.{function}:{function}", name=function.partition("_")[0])


def main() -> None:
    """Entry point of the ``mnb`` script."""
    sys.exit(until_unread(lambda: call(sys.argv[1:])))


def call(tokens: Sequence[str]) -> int:
    """Run one command and return its exit code.

    0 all well, 1 a launch failed or a rule is broken, 2 bad input, 3 isolation unavailable, 4 inconclusive.
    `main` adds 141 for output whose reader has gone away.
    """
    if not tokens or tokens[0] in ("--help", "-h"):
        for function in FUNCTIONS:
            app[function.partition("_")[0]]  # imported for its first line in the list
    try:
        return int(app(list(tokens), exit_on_error=False, result_action="return_value") or 0)
    except cyclopts.CycloptsError:
        return 2
    except MnbError as error:
        print(f"mnb: {plain_lines(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("mnb: interrupted", file=sys.stderr)
        return INTERRUPTED

"""The commands, and what ``mnb --help`` says of each.

That is read from the source of the command: to import all of them takes several times as long as all else.
"""

from __future__ import annotations

import ast
import itertools
from importlib.resources import files

COMMANDS = {
    "Prepare": ("doctor", "prepare", "list_tests"),
    "Run": ("jobs", "watch", "check", "resume", "run", "rerun", "fleet"),
    "Read": ("report", "summary", "baseline", "schema"),
    "Tender": ("tender", "bundle", "stamp", "verify", "accept", "bids"),
}
"""Functions by the heading that ``mnb --help`` lists them below."""
FUNCTIONS = tuple(itertools.chain.from_iterable(COMMANDS.values()))


def name_of(function: str) -> str:
    """What one types."""
    return function.partition("_")[0]


def first_paragraph(function: str) -> str:
    """How the help of a command begins."""
    source = (files("milabench_ng.cli") / f"{function}.py").read_text("utf-8")
    found = next(filter(None, (_help(node, function) for node in ast.parse(source).body)))
    return " ".join(found.partition("\n\n")[0].split())


def _help(node: ast.stmt, name: str) -> str | None:
    """The docstring of the function ``name``, or the help of the app of commands ``name``."""
    match node:
        case ast.FunctionDef(name=found) if found == name:
            return ast.get_docstring(node)
        case ast.Assign(targets=[ast.Name(id=found)], value=ast.Call(keywords=given)) if found == name:
            return next((str(ast.literal_eval(each.value)) for each in given if each.arg == "help"), None)
    return None

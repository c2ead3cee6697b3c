"""The command reference, made of the commands themselves. ``scripts/docs --reference`` writes it."""

from __future__ import annotations

import re
import sys
from unittest import mock

from pages import GENERATED

from milabench_ng.cli import app

_NOTICE = """\
# Commands

Generated from the commands by `scripts/docs --reference`. Do not edit this page: edit the docstring of the command.
`--help-all` prints the same text for a command, `--help` what most people need of it.
"""
_CONTENTS = re.compile(r"## Table of Contents\n.*?(?=\*\*Commands\*\*)", re.DOTALL)
_EXAMPLE = re.compile(r"^Example: (mnb .+)$", re.MULTILINE)
_FLAG = re.compile(r"^\* \[`--install-completion`\].*\n", re.MULTILINE)
"""Listed like a command, and has no section."""


def reference() -> str:
    """The whole page."""
    with mock.patch.object(sys, "argv", ["mnb"]):  # else some usage lines have the name of the program that runs
        made = app.generate_docs(output_format="markdown", usage_name="mnb")
    made = _CONTENTS.sub("", made.partition("\n")[2].strip().replace("```console", "```text"))
    made = _FLAG.sub("", made).replace(" *[default: ()]*", "")
    made = _EXAMPLE.sub(r"```sh\n\1\n```", made)
    lines = [line.rstrip() for line in made.splitlines()]
    return _NOTICE + re.sub(r"\n{3,}", "\n\n", "\n".join(["", *lines]).rstrip()) + "\n"


if __name__ == "__main__":
    GENERATED.write_text(reference())

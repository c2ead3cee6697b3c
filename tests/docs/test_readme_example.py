"""The examples in the documents are what the command prints today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, blocks, inline_code

COMMAND = "mnb report baselines/h200.json --compare v100 --price 15000"
README = ROOT / "README.md"
SHORT, WHOLE = 18, 60
"""How many lines the README shows at least, and the page that explains the report."""


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """The lines of the command."""
    words = [sys.executable, "-m", "milabench_ng", *COMMAND.split()[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "230"})
    assert done.returncode == 0, done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()]


def missing(shown: list[str], printed: list[str]) -> list[str]:
    """What is shown and not printed, or printed only above what is shown before it."""
    rest = iter(printed)
    return [line for line in shown if line not in rest]


@pytest.mark.parametrize(
    ("page", "least"), [(README, SHORT), (ROOT / "docs" / "how-to" / "compare-and-price.md", WHOLE)], ids=str
)
def test_every_line_of_the_example_is_printed_in_this_order(page: Path, least: int, printed: list[str]) -> None:
    texts = [text for _, text in blocks(page)]
    example = texts[texts.index(f"{COMMAND}\n") + 1]
    shown = [
        line for line in example.splitlines() if line and not line.startswith("[")
    ]  # in brackets: what is left out
    assert len(shown) >= least
    assert missing(shown, printed) == []


def test_a_line_that_is_not_printed_or_stands_elsewhere_is_found() -> None:
    assert missing(["a", "c"], ["a", "b", "c"]) == []
    assert missing(["a", "d"], ["a", "b", "c"]) == ["d"]
    assert missing(["c", "a"], ["a", "b", "c"]) == ["a"]


def test_the_readme_is_short() -> None:
    text = README.read_text()
    for _, block in blocks(README):
        text = text.replace(block, "")
    assert len(text.split()) <= 700


def test_the_readme_names_every_command() -> None:
    from milabench_ng.cli.command_list import FUNCTIONS

    listed = {code.removeprefix("mnb ") for code in inline_code(README) if code.startswith("mnb ")}
    assert {function.partition("_")[0] for function in FUNCTIONS} <= listed

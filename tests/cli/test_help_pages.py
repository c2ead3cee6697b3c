"""What ``--help`` and ``--help-all`` print."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import takewhile

import pytest

from milabench_ng.cli import call
from milabench_ng.cli.command_list import FUNCTIONS, first_paragraph, name_of

COMMANDS = [name_of(function) for function in FUNCTIONS]
LONG = ("jobs", "report", "run", "rerun")
"""Commands with options that few need."""


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """The lines of a page on a terminal of some width."""

    def lines(words: str, columns: int = 80) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert call(words.split()) == 0
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.mark.parametrize("command", LONG)
def test_the_short_page_fits_a_screen_and_names_every_option(page, command: str) -> None:  # type: ignore[no-untyped-def]
    short, whole = page(f"{command} --help"), page(f"{command} --help-all")
    assert len(short) <= 23, "and a line for the prompt"
    assert max(map(len, short)) <= 80
    named = {word for line in whole for word in re.findall(r"^  (--[a-z-]+)", line)}
    assert len(named) > 15
    assert named <= set(re.findall(r"--[a-z-]+", "\n".join(short)))
    assert len(whole) > len(short)


@pytest.mark.parametrize("columns", [80, 100, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_text_is_wrapped_once(page, command: str, columns: int) -> None:  # type: ignore[no-untyped-def]
    """No line of a text could take the first word of the next."""
    lines = page(f"{command} --help-all", columns)
    assert max(len(line) for line in lines if "mnb " not in line) <= columns
    for text, indent in texts(lines):
        assert text == textwrap.wrap(" ".join(text), columns - indent, break_on_hyphens=False)


def texts(lines: list[str]) -> Iterator[tuple[list[str], int]]:
    """Every text beside a label, with how far it is indented."""
    for at, line in enumerate(lines):
        more = list(takewhile(lambda each: each.startswith("   "), lines[at + 1 :]))
        if re.match(r"  \S", line) and more:
            indent = len(more[0]) - len(more[0].lstrip())
            first = line[indent:] if line[:indent].endswith("  ") else ""  # else its label is too wide
            yield [text for text in (first, *(each[indent:] for each in more)) if text], indent


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_the_list_says_of_a_command_is_how_its_own_page_begins(page, function: str) -> None:  # type: ignore[no-untyped-def]
    shown = " ".join(" ".join(page(f"{name_of(function)} --help-all")).split())
    assert f" {first_paragraph(function)} " in shown


def test_the_list_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from milabench_ng.cli import call; call(['--help'])\n"
        f"commands = {{f'milabench_ng.cli.{{name}}' for name in {FUNCTIONS!r}}}\n"
        "heavy = sys.modules.keys() & (commands | {'rich', 'psutil', 'milabench_ng.records.record'})\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_short_command_is_explained_whole(page) -> None:  # type: ignore[no-untyped-def]
    assert page("verify --help") == page("verify --help-all") == page("verify -h")


def test_options_that_belong_together_are_a_group(page) -> None:  # type: ignore[no-untyped-def]
    whole = page("jobs --help-all")
    repeats = whole[whole.index("Repeats:") + 1 :]
    options = [line.split()[0] for line in repeats[: repeats.index("")] if line.startswith("  --")]
    assert options == ["--sessions", "--session-gap", "--target-ci", "--budget", "--for"]


def test_a_page_names_choices_and_defaults_that_say_something(page) -> None:  # type: ignore[no-untyped-def]
    whole = " ".join(" ".join(page("jobs --help-all")).split())
    assert "--repeat INT Number of repeats of every test in each session. [default: 1]" in whole
    assert "[cold, warm] [default: cold]" in whole
    assert "default: False" not in whole
    assert "default: ()" not in whole


@pytest.mark.parametrize("words", ["reprt --help", "baseline sho --help-all"])
def test_help_on_an_unknown_command_says_so(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert call(words.split()) == 2
    assert "unknown command" in capsys.readouterr().err


def test_what_follows_two_dashes_is_the_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["jobs", "quik", "--", "--help"]) == 2
    assert "no shipped profile" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["tender", "baseline", "stamp"])
def test_a_command_of_commands_alone_prints_its_page(page, command: str) -> None:  # type: ignore[no-untyped-def]
    assert page(command) == page(f"{command} --help")


def test_a_command_that_only_mnb_starts_is_not_listed(page) -> None:  # type: ignore[no-untyped-def]
    listed = {line.split()[0] for line in page("fleet --help") if line.startswith("  ") and line[2] != " "}
    assert {"run", "status"} <= listed
    assert "meet" not in listed


def test_an_argument_that_may_be_left_out_is_in_brackets(page) -> None:  # type: ignore[no-untyped-def]
    assert page("list --help")[0] == "Usage: mnb list [OPTIONS] [PROFILE]"
    assert page("rerun --help")[0] == "Usage: mnb rerun [OPTIONS] RECORD FLAGS..."

"""What is generated, the command reference, tables and the pictures, is what the commands give today."""

from __future__ import annotations

import command_reference
import csv_columns
import pictures
import pytest
from pages import GENERATED, ROOT, headings, links

from milabench_ng.cli.command_list import FUNCTIONS


def test_the_command_reference_is_that_of_the_commands() -> None:
    assert GENERATED.read_text() == command_reference.reference(), "run scripts/docs --reference"


def test_the_headers_in_csv_are_those_of_today() -> None:
    assert csv_columns.PAGE.read_text() == csv_columns.page(), "run scripts/docs --reference"


def test_the_command_reference_has_every_command() -> None:
    found = headings(GENERATED.read_text())
    assert [function for function in FUNCTIONS if f"mnb {function.partition('_')[0]}" not in found] == []


@pytest.mark.parametrize(("name", "columns"), pictures.TERMINALS.items())
def test_the_terminal_shows_what_is_printed(name: str, columns: int) -> None:
    shown = (pictures.IMAGES / name).read_text()
    assert shown == pictures.terminal(columns), "run scripts/screenshots --docs"
    assert "http" not in shown.replace("http://www.w3.org/2000/svg", "")


def test_every_picture_is_shown_and_small() -> None:
    pages = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    shown = {(page.parent / target).resolve() for page in pages for target in links(page) if "images/" in target}
    assert shown == {path.resolve() for path in pictures.IMAGES.iterdir()}
    assert all(path.stat().st_size < 300_000 for path in pictures.IMAGES.iterdir())
    head = (pictures.IMAGES / "report.png").read_bytes()[:24]
    width, height = (int.from_bytes(head[at : at + 4], "big") for at in (16, 20))
    assert head.startswith(b"\x89PNG")
    assert width >= 1000
    assert height >= 1000

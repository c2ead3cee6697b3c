"""The reference pages list what the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, blocks

from milabench_ng.cli.broken_pipe import UNREAD
from milabench_ng.cli.schema import schema_of
from milabench_ng.model.errors import MnbError
from milabench_ng.model.signals import ENDING, exit_code
from milabench_ng.present.render import columns
from milabench_ng.present.render.sections import Column
from milabench_ng.verification.doubts.registry import DOUBTS

REFERENCE = ROOT / "docs" / "reference"


def first_column(page: Path, section: str = "") -> set[str]:
    """The inline code, or else the number, in the first cell of every row of the tables below a heading."""
    text = page.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0] if section else page.read_text()
    rows = re.findall(r"^\|([^|]+)\|", text, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`|(\d+)", row) for word in word if word}


def kinds(file: Any, name: str, field: str) -> set[str]:
    """The values that a field of a type in a JSON Schema may have."""
    return set(schema_of(file)["$defs"][name]["properties"][field]["enum"])


@pytest.mark.parametrize(
    ("section", "file", "name", "field"),
    [
        ("Marks", "record", "Mark", "kind"),
        ("Flags", "summary", "LaunchFlag", "kind"),
        ("Causes", "record", "Failure", "cause"),
    ],
)
def test_every_kind_has_a_row_and_no_other(section: str, file: str, name: str, field: str) -> None:
    assert first_column(REFERENCE / "marks.md", section) == kinds(file, name, field)


def test_every_shipped_profile_has_a_row_and_no_other() -> None:
    text = (REFERENCE / "profiles.md").read_text().partition("## Packages")[0]
    rows = set(re.findall(r"`([\w-]+)`", " ".join(re.findall(r"^\|([^|]+)\|", text, re.MULTILINE))))
    assert rows == {path.stem for path in (ROOT / "profiles").glob("*.json")}


def test_the_example_of_a_profile_has_the_keys_of_the_schema() -> None:
    defined = schema_of("profile")["$defs"]["Test"]["properties"]
    page = REFERENCE / "profiles.md"
    assert first_column(page, "Entries") == set(defined)
    examples = [json.loads(text) for language, text in blocks(page) if language == "json"]
    assert examples
    assert {key for example in examples for entry in example.values() for key in entry} <= set(defined)


def test_every_exit_code_has_a_row() -> None:
    codes = {0, 1, 4, *map(exit_code, ENDING), UNREAD, MnbError.exit_code}
    codes |= {error.exit_code for error in MnbError.__subclasses__()}
    assert {int(code) for code in first_column(REFERENCE / "exit-codes.md") if code.isdigit()} == codes


def test_every_doubt_has_a_row_and_no_other() -> None:
    text = (REFERENCE / "doubts.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(doubt.name, _sentence(doubt.title), _sentence(doubt.ask)) for doubt in DOUBTS]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def test_every_column_of_the_table_of_tests_is_explained() -> None:
    page = ROOT / "docs" / "how-to" / "read-the-report.md"
    always = [value for value in vars(columns).values() if isinstance(value, Column)]
    compared = [*columns._ratio_columns(0, "", 0.02), *columns._adjusted_columns(0, "")]
    titles = {column.title for column in (*always, *compared, *columns._bound_columns(0, "", 0.02))}
    assert titles - first_column(page) == set()

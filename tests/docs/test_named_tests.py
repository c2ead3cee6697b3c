"""The claims of docs/isolation.md and docs/reliability.md name tests, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import ROOT, inline_code

PAGE = ROOT / "docs" / "isolation.md"


def defined() -> set[str]:
    """Every test function of the project."""
    files = [file for name in ("test_*.py", "check_*.py") for file in (ROOT / "tests").rglob(name)]
    return {
        name for file in files for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize(("page", "least"), [(PAGE, 30), (ROOT / "docs" / "reliability.md", 9)])
def test_the_tests_that_are_named_exist(page: Path, least: int) -> None:
    named = {code for code in inline_code(page) if code.startswith("test_")}
    assert len(named) > least
    assert sorted(named - defined()) == []


def test_every_row_of_the_table_names_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [row for row in rows[1:] if "`test_" not in row] == []

"""The claims of docs/isolation-tests.md and docs/reliability.md: each names a test, which exists."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pages import ROOT, inline_code

PAGES = [ROOT / "docs" / "isolation-tests.md", ROOT / "docs" / "reliability.md"]
PROVED = ("`test_", "`scripts/")
"""A row names a test, or a script with a recorded run."""


def defined() -> set[str]:
    """Every test function of the project."""
    files = [file for name in ("test_*.py", "check_*.py") for file in (ROOT / "tests").rglob(name)]
    return {
        name for file in files for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tests_that_are_named_exist(page: Path) -> None:
    named = {code for code in inline_code(page) if code.startswith("test_")}
    assert len(named) > 20
    assert sorted(named - defined()) == []
    scripts = {code.split()[0] for code in inline_code(page) if code.startswith("scripts/")}
    assert [script for script in scripts if not os.access(ROOT / script, os.X_OK)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_of_a_table_of_faults_names_a_test(page: Path) -> None:
    for table in page.read_text().split("\n\n"):
        header, *rows = [line for line in table.splitlines() if line.startswith("| ")] or [""]
        if header.endswith("test |") or page.stem == "isolation-tests":
            assert [row for row in rows if not any(word in row for word in PROVED)] == []

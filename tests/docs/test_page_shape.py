"""Pages are short, say first what they are for, and have tables that can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import GENERATED, ROOT, name

LONG = {GENERATED, *(ROOT / "docs" / f"{stem}.md" for stem in ("measurements", "reliability", "internals"))}
"""Generated, or the developers' notebook."""
WIDE = {*LONG, ROOT / "docs" / "architecture.md", ROOT / "docs" / "isolation-tests.md"}
"""The tables of developers have wider cells."""
DOCS = sorted((ROOT / "docs").rglob("*.md"))
_CELLS = re.compile(r"(?<!\\)\|")


def cells(page: Path) -> list[str]:
    """What stands in the tables of a page, without the targets of links."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    rows = [line.strip("| ") for line in text.splitlines() if line.lstrip().startswith("|")]
    return [re.sub(r"\]\([^)]*\)", "]", cell).strip() for row in rows for cell in _CELLS.split(row)]


@pytest.mark.parametrize("page", [page for page in DOCS if page not in LONG], ids=name)
def test_a_page_has_at_most_250_lines(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 250


@pytest.mark.parametrize("page", [page for page in DOCS if page not in WIDE], ids=name)
def test_a_cell_has_at_most_20_words(page: Path) -> None:
    assert [cell for cell in cells(page) if len(cell.split()) > 20] == []


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    title, empty, first, *_ = page.read_text().splitlines()
    assert title.startswith("# ")
    assert not empty
    assert first[:1].isalnum() or first.startswith(("`", "*", "["))

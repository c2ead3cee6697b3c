"""Each message that the pages on troubleshooting explain is one that the program prints."""

from __future__ import annotations

import re

import pytest
from pages import ROOT, headings

TEXT = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("troubleshooting*.md")))
TITLES = [match[1] for title in headings(TEXT) if (match := re.fullmatch("`(.+)`", title))]


def texts() -> str:
    """The program, with the pieces of each string joined."""
    source = "\0".join(path.read_text() for path in sorted((ROOT / "milabench_ng").rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", source)


def parts(title: str) -> list[str]:
    """The words between the dots that stand for values."""
    return [part for piece in title.split("...") if (part := piece.strip())]


def test_every_message_that_is_explained_is_printed() -> None:
    known = texts()
    assert len(TITLES) > 40
    assert [title for title in TITLES if not all(part in known for part in parts(title))] == []


@pytest.mark.parametrize("part", ["Problem", "Cause", "Fix"])
def test_every_message_has_its(part: str) -> None:
    _, *sections = re.split(r"^### ", TEXT, flags=re.MULTILINE)
    assert [text.partition("\n")[0] for text in sections if f"**{part}**: " not in text] == []

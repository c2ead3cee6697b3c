"""The documents of this project, and what they quote: commands, files, links."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
GENERATED = ROOT / "docs" / "reference" / "commands.md"

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_LINK_TEXT = re.compile(r"\[([^\]]+)\]\([^)]*\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_SHELL = ("sh", "bash", "console", "shell")
_OURS = re.compile(r"(?:\w+=\S+ )*(?:mnb .|scripts/\w|uv .|python3? -m .)")
"""How a command of ours begins, after variables that are set for it."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return [(found[2], textwrap.dedent(found[3])) for found in _BLOCK.finditer(page.read_text())]


def name(page: Path) -> str:
    """How a page is called in the output of a test."""
    return str(page.relative_to(ROOT))


def headings(text: str) -> list[str]:
    """The text of every heading, without its signs."""
    return [found[1] for found in HEADING.finditer(_BLOCK.sub("", text))]


def slugs(titles: Iterable[str]) -> Iterator[str]:
    """The anchor of every heading of a page, as GitHub makes it."""
    seen: Counter[str] = Counter()
    for title in titles:
        slug = re.sub(r"[^\w\- ]", "", _LINK_TEXT.sub(r"\1", title).lower()).replace(" ", "-")
        yield f"{slug}-{seen[slug]}" if seen[slug] else slug
        seen[slug] += 1


def anchors(page: Path) -> set[str]:
    """What a link to a page may name."""
    return set(slugs(headings(page.read_text())))


def commands(page: Path) -> list[str]:
    """Every line of a shell block, and every piece of inline code that is a command of ours.

    The inline code of the generated page is that of docstrings, which name commands without their arguments.
    """
    shell = [line.strip() for language, text in blocks(page) if language in _SHELL for line in text.splitlines()]
    prose = _BLOCK.sub("", page.read_text())
    inline = [code for code in _INLINE.findall(prose) if _OURS.match(code) and page != GENERATED]
    return [line for line in (*shell, *inline) if line and not line.startswith("#")]


def links(page: Path) -> list[str]:
    """The targets of all links."""
    return _LINK.findall(_BLOCK.sub("", page.read_text()))


def inline_code(page: Path) -> list[str]:
    """All pieces of inline code outside fenced blocks."""
    return _INLINE.findall(_BLOCK.sub("", page.read_text()))

"""The documents of this project, and what they quote: commands, files, links."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SHELL = ("sh", "bash", "console", "shell")
_OURS = re.compile(r"(?:\w+=\S+ )*(?:mnb .|scripts/\w|uv .|python3? -m .)")
"""How a command of ours begins, after variables that are set for it."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return [(found[1], found[2]) for found in _BLOCK.finditer(page.read_text())]


def commands(page: Path) -> list[str]:
    """Every line of a shell block, and every piece of inline code that is a command of ours."""
    shell = [line.strip() for language, text in blocks(page) if language in _SHELL for line in text.splitlines()]
    prose = _BLOCK.sub("", page.read_text())
    inline = [code for code in _INLINE.findall(prose) if _OURS.match(code)]
    return [line for line in (*shell, *inline) if line and not line.startswith("#")]


def links(page: Path) -> list[str]:
    """The targets of all links."""
    return _LINK.findall(_BLOCK.sub("", page.read_text()))


def inline_code(page: Path) -> list[str]:
    """All pieces of inline code outside fenced blocks."""
    return _INLINE.findall(_BLOCK.sub("", page.read_text()))

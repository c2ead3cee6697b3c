"""Copies the pages to where the site is built. ``scripts/docs`` runs it: ``staging.py FOLDER``.

The site has the pages of ``docs/`` and the changelog. A link to another file of the project becomes plain text there.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from pathlib import Path

from pages import HEADING, ROOT, headings, slugs

ELSEWHERE = {ROOT / "CHANGELOG.md": "changelog.md", ROOT / "README.md": "index.md"}
"""Pages outside ``docs/`` that the site has under another name."""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)(#[^)\s]+)?\)")


def stage(folder: Path) -> None:
    """Everything that the site is built of, in ``folder``."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    (folder / "docs" / "changelog.md").write_text((ROOT / "CHANGELOG.md").read_text().replace("](docs/", "]("))
    for page in sorted((folder / "docs").rglob("*.md")):
        place = page.relative_to(folder / "docs").parent
        page.write_text(with_anchors(_LINK.sub(functools.partial(link, place), page.read_text())))


def with_anchors(text: str) -> str:
    """The text with the anchors of its headings written out: a link then works on the site as it does on GitHub."""
    named, lines, fenced = slugs(headings(text)), [], False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        lines.append(line if fenced or not HEADING.match(line) else f"{line} {{#{next(named)}}}")
    return "\n".join(lines) + "\n"


def link(place: Path, found: re.Match[str]) -> str:
    """A link of a page in ``docs/place`` as the site has it."""
    text, target, anchor = found[1], found[2], found[3] or ""
    meant = (ROOT / "docs" / place / target).resolve()
    if meant.is_relative_to(ROOT / "docs"):
        return found[0]
    if meant in ELSEWHERE:
        return f"[{text}]({os.path.relpath(ELSEWHERE[meant], place)}{anchor})"
    return text


if __name__ == "__main__":
    stage(Path(sys.argv[1]))

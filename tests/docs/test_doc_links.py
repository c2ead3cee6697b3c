"""Every link, every anchor and every file that the documents name exists, and every page can be found."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT, anchors, blocks, inline_code, links, name

from milabench_ng.model.events import Cause

_PROJECT_FILE = re.compile(r"(?:\.\./)?[\w./-]*[\w-](?:\.(?:py|md|json|toml|lock)|/)")
_MADE_BY_USERS = frozenset(
    {
        *(
            "run.json",
            "vae.json",
            "base.json",
            "report.json",
            "probe.json",
            "results/",
            "FILE.json",
        ),
        *(
            "bids.json",
            "tender.json",
            "weights-modern2.json",
            "logs/",
            "series/",
            "weights/SUITE.json",
            "bundle.json",
            "bundle.json.sig",
            "weights.json",
            "reference.json",
            "ledger.jsonl",
            "wheelhouse/",
        ),
    }
)
"""Files that exist only after somebody has run something."""
THIRD_PARTY = ROOT / "tests" / "docs" / "third_party"
PACKAGES = sorted({path.parent for path in (ROOT / "milabench_ng").rglob("*.py")})
"""A page may name a file by its place in the package that it writes about."""


SITE = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert [target for target in links(page) if not leads_somewhere(page, target)] == []


def leads_somewhere(page: Path, target: str) -> bool:
    """Whether the file is there and, of a page, the heading."""
    if target.startswith(("http://", "https://")):
        return True
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or (file.suffix == ".md" and anchor in anchors(file)))


def test_a_broken_link_and_a_broken_anchor_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n\n## Again\n\n## Again\n\n```text\n# no heading\n```\n")
    there = ("page.md", "#one-two-three", "page.md#again", "#again-1", "https://example.org/none")
    assert [target for target in there if not leads_somewhere(page, target)] == []
    broken = ("none.md", "#two", "page.md#again-2", "#no-heading")
    assert [target for target in broken if leads_somewhere(page, target)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = {code for code in inline_code(page) if _PROJECT_FILE.fullmatch(code)} - _MADE_BY_USERS
    places = (ROOT, ROOT / "docs", THIRD_PARTY, *PACKAGES)
    assert [file for file in sorted(named) if not any((place / file).exists() for place in places)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            files = [(page.parent / target.partition("#")[0]).resolve() for target in links(page)]
            waiting += [file for file in files if file.suffix == ".md" and file.is_file()]
    assert [name(page) for page in PAGES if page not in reached] == []


def test_every_page_is_in_the_menu_of_the_site_and_in_its_index_once() -> None:
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert sorted(entries(SITE["nav"])) == sorted({*pages, "changelog.md"})
    assert pages - {"index.md"} <= set(links(ROOT / "docs" / "index.md"))


def entries(menu: list[Any]) -> list[str]:
    """The pages of a menu, those of its parts included."""
    found = []
    for entry in menu:
        for value in entry.values():
            found += [value] if isinstance(value, str) else entries(value)
    return found


def test_the_example_is_the_text_of_its_files() -> None:
    shown = [text for language, text in blocks(ROOT / "docs" / "how-to" / "add-a-workload.md") if language != "sh"]
    files = [
        *("src/acme_bench/probe.py", "src/acme_bench/features.py", "pyproject.toml"),
        *("acme.json", "acme-weights.json"),
    ]
    assert shown == [(THIRD_PARTY / name).read_text() for name in files]


def test_the_methodology_names_every_cause_of_failure() -> None:
    text = (ROOT / "docs" / "methodology" / "warnings.md").read_text()
    assert [cause for cause in Cause.__args__ if f"`{cause}`" not in text] == []


def test_the_examples_weights_are_those_of_its_tests() -> None:
    tests = json.loads((THIRD_PARTY / "acme.json").read_text())
    weights = json.loads((THIRD_PARTY / "acme-weights.json").read_text())
    assert list(weights) == [f"acme.{test}" for test in tests]

"""Every link and every file that the documents name exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pages import PAGES, ROOT, blocks, inline_code, links

from milabench_ng.records.record import Cause

_PROJECT_FILE = re.compile(r"(?:\.\./)?[\w./-]*[\w-](?:\.(?:py|md|json|toml|lock)|/)")
_MADE_BY_USERS = frozenset(
    {
        *("run.json", "vae.json", "base.json", "report.json", "probe.json", "results/", "FILE.json"),
        *("weights/SUITE.json", "bundle.json", "bundle.json.sig", "weights.json", "ledger.jsonl"),
    }
)
"""Files that exist only after somebody has run something."""
THIRD_PARTY = ROOT / "tests" / "docs" / "third_party"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    relative = [target.partition("#")[0] for target in links(page) if not target.startswith(("http://", "https://"))]
    assert [target for target in relative if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = {code for code in inline_code(page) if _PROJECT_FILE.fullmatch(code)} - _MADE_BY_USERS
    places = (ROOT, ROOT / "milabench_ng", ROOT / "docs", THIRD_PARTY)
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached = {(ROOT / target.partition("#")[0]).resolve() for target in links(ROOT / "README.md")}
    shown = {ROOT / "README.md", ROOT / "CONTRIBUTING.md"}  # by whatever hosts the project
    assert [page.name for page in PAGES if page.resolve() not in reached and page not in shown] == []


def test_the_example_is_the_text_of_its_files() -> None:
    shown = [text for language, text in blocks(ROOT / "docs" / "add-a-workload.md") if language != "sh"]
    files = [
        *("src/acme_bench/probe.py", "src/acme_bench/features.py", "pyproject.toml"),
        *("acme.json", "acme-weights.json"),
    ]
    assert shown == [(THIRD_PARTY / name).read_text() for name in files]


def test_the_methodology_names_every_cause_of_failure() -> None:
    text = (ROOT / "docs" / "methodology.md").read_text()
    assert [cause for cause in Cause.__args__ if f"`{cause}`" not in text] == []


def test_the_examples_weights_are_those_of_its_tests() -> None:
    tests = json.loads((THIRD_PARTY / "acme.json").read_text())
    weights = json.loads((THIRD_PARTY / "acme-weights.json").read_text())
    assert list(weights) == [f"acme.{test}" for test in tests]

"""What scripts/release refuses, and in which words: what was asked, what was found, what to do."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TODAY = "2026-12-01"
GOOD = "# Changelog\n\nWords.\n\n## 0.2.0 (2026-11-30)\n\n- New.\n\n## 0.1.0 (2026-11-21)\n\nThe first version.\n"


def load() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("check_release", str(ROOT / "scripts" / "check-release"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


check = load()


def test_a_dated_heading_of_the_version_is_good() -> None:
    assert check.agreement("0.2.0", GOOD, TODAY) == []
    assert check.agreement("0.2.0", GOOD, "2026-11-30") == []


@pytest.mark.parametrize(
    ("version", "heading", "found", "cure"),
    [
        ("0.2.0", "## Unreleased: 0.2.0", "it is '## Unreleased: 0.2.0'", "Change it to '## 0.2.0 (2026-12-01)'"),
        ("0.2.0", "## Unreleased", "it is '## Unreleased'", "Change it to '## 0.2.0 (2026-12-01)'"),
        ("0.2.0", "## 0.2.0", "it is '## 0.2.0'", "Write it as '## 0.2.0 (2026-12-01)'"),
        ("0.2.0", "## 0.2.0 (2026-11-31)", "it is '## 0.2.0 (2026-11-31)'", "Write it as '## 0.2.0 (2026-12-01)'"),
        ("0.3.0", "## 0.2.0 (2026-11-30)", "it is '## 0.2.0 (2026-11-30)'", "Raise the version"),
        ("0.2.0", "## 0.2.0 (2026-12-02)", "today is 2026-12-01", "Write '## 0.2.0 (2026-12-01)'"),
    ],
)
def test_any_other_heading_is_refused(version: str, heading: str, found: str, cure: str) -> None:
    [problem] = check.agreement(version, GOOD.replace("## 0.2.0 (2026-11-30)", heading), TODAY)
    assert problem.startswith(f"the first heading of CHANGELOG.md must be version {version}")
    assert found in problem
    assert cure in problem


def test_a_changelog_must_have_headings_and_words() -> None:
    assert "has none" in check.agreement("0.2.0", "# Changelog\n", TODAY)[0]
    assert "is empty" in check.agreement("0.2.0", GOOD.replace("- New.\n", ""), TODAY)[0]


def test_the_tag_of_the_version_is_of_this_commit_or_is_not_there() -> None:
    assert check.tagging("0.2.0", [], ["v0.1.0"]) == []
    assert check.tagging("0.2.0", ["v0.2.0"], ["v0.1.0", "v0.2.0"]) == []
    [elsewhere] = check.tagging("0.2.0", [], ["v0.1.0", "v0.2.0"])
    assert "the tag of another commit. Raise the version" in elsewhere
    [wrong] = check.tagging("0.2.0", ["v0.1.9"], ["v0.1.9"])
    assert "may have the tag v0.2.0 only; it has v0.1.9. Remove it" in wrong


def test_what_is_not_committed_is_named() -> None:
    assert check.tidiness([]) == []
    [problem] = check.tidiness([" M README.md", "?? a", "?? b", "?? c"])
    assert "4 files differ: README.md, a, b ..." in problem


def test_wheels_that_differ_are_told_apart(tmp_path: Path) -> None:
    def wheel(name: str, files: dict[str, str]) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return tmp_path / name

    first = wheel("first", {"same": "1", "mine": "1", "changed": "1"})
    second = wheel("second", {"same": "1", "yours": "1", "changed": "2"})
    assert check.differences(first, first) == []
    changed, mine, yours = check.differences(first, second)
    assert "changed differs" in changed
    assert f"mine is only in {first}" in mine
    assert f"yours is only in {second}" in yours


def test_a_word_too_many_shows_how_to_call_it() -> None:
    asked = subprocess.run([ROOT / "scripts" / "release", "--upload"], capture_output=True, text=True, check=False)
    assert asked.returncode == 2
    assert "scripts/release --rehearse" in asked.stderr

"""CHANGELOG.md: the newest version first, and a date for each that was released."""

from __future__ import annotations

import re
from datetime import date

from pages import ROOT

from milabench_ng import __version__

HEADINGS = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
RELEASED = [heading for heading in HEADINGS if not heading.startswith("Unreleased")]


def parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_only_the_first_heading_may_lack_a_date() -> None:
    assert HEADINGS[0] in (f"Unreleased: {__version__}", RELEASED[0])
    assert RELEASED in (HEADINGS, HEADINGS[1:])


def test_every_released_version_has_its_date_and_newer_ones_stand_above() -> None:
    found = [re.fullmatch(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)", heading) for heading in RELEASED]
    assert [heading for heading, match in zip(RELEASED, found, strict=True) if match is None] == []
    versions = [parts(match[1]) for match in found if match]
    assert versions == sorted(set(versions), reverse=True)
    dates = [date.fromisoformat(match[2]) for match in found if match]
    assert dates == sorted(dates, reverse=True)
    if len(RELEASED) < len(HEADINGS):
        assert parts(__version__) > versions[0]


def test_the_version_of_the_package_is_the_newest() -> None:
    assert HEADINGS[0].removeprefix("Unreleased: ").partition(" ")[0] == __version__

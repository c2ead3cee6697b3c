"""The map of the house is of this house: every path it names exists, and every room is on it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "milabench_ng"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
INSIDE = (ROOT / "docs" / "internals.md").read_text()


def test_every_module_that_is_named_exists() -> None:
    named = set(re.findall(r"`([\w/]+/[\w]+\.py)`", PAGE + INSIDE))
    assert len(named) > 40
    assert sorted(path for path in named if not any((top / path).is_file() for top in (PACKAGE, ROOT))) == []


def test_every_room_is_on_the_page() -> None:
    rooms = {path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE}
    families = {PACKAGE / "workloads", PACKAGE / "datasets"}
    shown = {room.name for room in rooms if room.parent not in families}
    assert sorted(name for name in shown if f"`{name}/`" not in PAGE and f"`{name}`" not in PAGE) == []


def test_every_file_that_a_room_is_said_to_have_is_in_it() -> None:
    rooms = re.findall(r"^\| ((?:`\w+/`,? ?)+) \| (.*) \|$", PAGE, flags=re.MULTILINE)
    assert len(rooms) > 10
    for named, text in rooms:
        within = [PACKAGE / room for room in re.findall(r"`(\w+)/`", named)]
        there = {path.name for room in within for path in room.rglob("*.py")}
        assert set(re.findall(r"`(\w+\.py)`", text)) <= there, named

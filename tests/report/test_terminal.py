"""Tables and statements on terminals of different widths."""

from __future__ import annotations

import os
import re
import shutil
from io import StringIO

import pytest
from terminal_stream import Terminal

from milabench_ng.present.render.cells import Fact, whole
from milabench_ng.present.render.sections import Facts, Heading, Part, in_one_table, table
from milabench_ng.present.render.terminal import write_parts

ROWS = [("resnet50", "images", "torchvision", 1234567, "a network for pictures that many know " * 3)]
COUNT = Heading("count", "", whole, True)
NOTE = Facts(facts=(Fact("note", "a long sentence on the node " * 8),))


def printed(monkeypatch: pytest.MonkeyPatch, stream: StringIO, width: int, *parts: Part) -> list[str]:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((width, 40)))
    write_parts(parts, stream)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    made = table("", ROWS, "name", "unit", "needs", COUNT, "what it is")
    lines = printed(monkeypatch, Terminal(), width, made, NOTE)
    assert max(map(len, lines)) <= width
    assert all(word in " ".join(lines) for word in ("torchvision", "1,234,567", "pictures"))


SPARING = table("", ROWS, "name", Heading("unit", spare=1), Heading("needs", spare=2), COUNT, "what it is")


def test_a_narrow_terminal_does_without_what_can_be_spared_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, Terminal(), 40, SPARING)
    assert lines[0].split() == ["name", "count", "what", "it", "is"]
    assert "unit, needs: shown in a wider terminal or in a file" in " ".join(" ".join(lines).split())
    assert not any("torchvision" in line for line in lines)
    lines = printed(monkeypatch, Terminal(), 73, SPARING)  # 8 + 6 + 9 + 36 and 3 gaps, without `needs`
    assert lines[0].split() == ["name", "unit", "count", "what", "it", "is"]


def test_a_file_gets_every_column_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, StringIO(), 40, SPARING)
    assert lines[0].split() == ["name", "unit", "needs", "count", "what", "it", "is"]
    assert lines[2].startswith("resnet50  images  torchvision  1,234,567  a network")


def test_a_column_without_any_value_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("0", None, None), ("1", "", 2)]
    lines = printed(monkeypatch, StringIO(), 80, table("", rows, "core", "why not", "cost"))
    assert [line.split() for line in (lines[0], *lines[2:])] == [["core", "cost"], ["0", "-"], ["1", "2"]]
    assert printed(monkeypatch, StringIO(), 80, table("", [], "core", "why not"))[0].split() == ["core", "why", "not"]


def test_statements_stand_below_their_title_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Facts(title="vae", text="Learns\npictures.", facts=(Fact("counts", "images"), Fact("", "and steps")))
    lines = printed(monkeypatch, StringIO(), 80, part, Facts(title="shares", text="none"))
    assert lines == ["vae", "Learns", "pictures.", "", "counts  images", "        and steps", "", "shares", "none"]


def test_one_table_of_all_names_part_and_row() -> None:
    parts = (Facts(title="node", facts=(Fact("RAM", "2 GiB"),)), table("", [("0", 3, None)], "GPU", "cores", "why"))
    found = in_one_table((*parts, table("", [("", 4, "it is full")], "GPU", "cores", "why"), NOTE))
    assert found.rows[:-1] == (
        ("node", "", "RAM", "2 GiB"),
        ("node", "0", "cores", 3),
        ("node", "0", "cores", 4),  # of the row above
        ("node", "0", "why", "it is full"),
    )
    assert found.rows[-1][:3] == ("", "", "note")

"""Tables and statements on terminals of different widths."""

from __future__ import annotations

import pytest
from printing import on_terminal, text_of

from milabench_ng.present.render.cells import Fact, whole
from milabench_ng.present.render.sections import Facts, Heading, in_one_table, table
from milabench_ng.present.render.terminal import write_parts

ROWS = [("resnet50", "images", "torchvision", 1234567, "a network for pictures that many know " * 3)]
COUNT = Heading("count", "", whole, True)
NOTE = Facts(facts=(Fact("note", "a long sentence on the node " * 8),))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    made = table("", ROWS, "name", "unit", "needs", COUNT, "what it is")
    lines = on_terminal(monkeypatch, width, write_parts, (made, NOTE))
    assert max(map(len, lines)) <= width
    assert all(word in " ".join(lines) for word in ("torchvision", "1,234,567", "pictures"))


SPARING = table("", ROWS, "name", Heading("unit", spare=1), Heading("needs", spare=2), COUNT, "what it is")


def test_a_narrow_terminal_does_without_what_can_be_spared_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_terminal(monkeypatch, 40, write_parts, [SPARING])
    assert lines[0].split() == ["name", "count", "what", "it", "is"]
    assert "unit, needs: shown in a wider terminal or in a file" in " ".join(" ".join(lines).split())
    assert not any("torchvision" in line for line in lines)
    lines = on_terminal(monkeypatch, 73, write_parts, [SPARING])  # 8 + 6 + 9 + 36 and 3 gaps, without `needs`
    assert lines[0].split() == ["name", "unit", "count", "what", "it", "is"]


def test_a_file_gets_every_column_in_one_line() -> None:
    lines = text_of(write_parts, [SPARING]).splitlines()
    assert lines[0].split() == ["name", "unit", "needs", "count", "what", "it", "is"]
    assert lines[2].startswith("resnet50  images  torchvision  1,234,567  a network")


def test_a_column_without_any_value_is_left_out() -> None:
    rows = [("0", None, None), ("1", "", 2)]
    lines = text_of(write_parts, [table("", rows, "core", "why not", "cost")]).splitlines()
    assert [line.split() for line in (lines[0], *lines[2:])] == [["core", "cost"], ["0", "-"], ["1", "2"]]
    assert text_of(write_parts, [table("", [], "core", "why not")]).splitlines()[0].split() == ["core", "why", "not"]


def test_statements_stand_below_their_title_and_text() -> None:
    part = Facts(title="vae", text="Learns\npictures.", facts=(Fact("counts", "images"), Fact("", "and steps")))
    lines = text_of(write_parts, [part, Facts(title="shares", text="none")]).splitlines()
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

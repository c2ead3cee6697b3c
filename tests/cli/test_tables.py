"""Tables of commands on terminals of different widths."""

from __future__ import annotations

import os
import re
import shutil
import sys
from io import StringIO

import pytest
from terminal_stream import Terminal

from milabench_ng.cli.tables import facts, standard_output, table

HEADERS = ("name", "unit", "needs", "count", "what it is")
ROWS = [("resnet50", "images", "torchvision", "1,234,567", "a network for pictures that many know " * 3)]


def printed(monkeypatch: pytest.MonkeyPatch, stream: StringIO, width: int, **options: tuple[str, ...]) -> list[str]:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((width, 40)))
    standard_output().print(table(HEADERS, ROWS, right=("count",), **options))
    standard_output().print(facts([("note", "a long sentence on the node " * 8)]))
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    lines = printed(monkeypatch, Terminal(), width)
    assert max(map(len, lines)) <= width
    assert all(word in " ".join(lines) for word in ("torchvision", "1,234,567", "pictures"))


def test_a_narrow_terminal_does_without_what_can_be_spared_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, Terminal(), 40, spare=("needs", "unit"))
    assert "needs" not in lines[0]
    assert "unit, needs: only in a wider terminal or in a file" in " ".join(" ".join(lines).split())
    assert not any("torchvision" in line for line in lines)


def test_a_column_without_any_value_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    standard_output().print(table(("core", "why not", "cost"), [("0", "-", "-"), ("1", "-", "2")], spare=("why not",)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in (lines[0], *lines[2:])] == [["core", "cost"], ["0", "-"], ["1", "2"]]
    standard_output().print(table(("core", "why not"), []))
    assert capsys.readouterr().out.split()[:3] == ["core", "why", "not"]


def test_a_file_gets_every_column_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, StringIO(), 40, spare=("needs", "unit"))
    assert lines[0].split() == ["name", "unit", "needs", "count", "what", "it", "is"]
    assert lines[2].startswith("resnet50  images  torchvision  1,234,567  a network")

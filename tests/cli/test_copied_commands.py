"""Commands that messages print are copied into a shell: each folder in them is one word."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.model.plain import quoted

LOCAL = ("fleet", "run", "smoke", "--launcher", "local", "--nodes", "2")


@pytest.mark.parametrize(
    ("file", "command", "advice"),
    [
        ("run.json", ["jobs", "smoke", "-o"], ["mnb", "resume"]),
        ("fleet.json", ["resume"], ["mnb", "fleet", "resume"]),
        ("fleet.json", ["fleet", "adopt"], ["mnb", "fleet", "status"]),
        (
            "fleet.json",
            ["fleet", "run", "smoke", "--launcher", "local", "--nodes", "2", "-o"],
            ["mnb", "fleet", "resume"],
        ),
    ],
)
def test_the_command_that_goes_on_with_a_taken_folder_can_be_copied(
    file: str, command: list[str], advice: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "res ults; of $HOME"
    folder.mkdir()
    (folder / file).write_text("{}")
    assert call([*command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert shlex.split(said[said.index("mnb ", 4) :]) == [*advice, str(folder)]


def test_a_name_that_steers_the_terminal_is_escaped_in_a_command_too() -> None:
    assert quoted("a\x1b[2Jb") == r"'a\x1b[2Jb'"
    assert quoted("/tmp/results") == "/tmp/results"

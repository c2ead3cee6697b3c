"""The example of the README is what the command prints today."""

from __future__ import annotations

import os
import subprocess
import sys

from pages import ROOT

COMMAND = "mnb report baselines/h200.json --compare v100 --price 15000"


def printed() -> list[str]:
    """Its lines, as wide as the README has them."""
    words = [sys.executable, "-m", "milabench_ng", *COMMAND.split()[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "230"})
    assert done.returncode == 0, done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()]


def test_every_line_of_the_example_is_printed() -> None:
    example = (ROOT / "README.md").read_text().partition(f"{COMMAND}\n```\n\n```text\n")[2].partition("\n```")[0]
    shown = [line for line in example.splitlines() if not line.startswith("[")]  # in brackets: what is left out
    there = set(printed())
    assert len(shown) > 60
    assert [line for line in shown if line not in there] == []

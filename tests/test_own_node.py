"""The groups of tests that were killed go, those of living ones stay: another pid namespace may use a pid again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests import own_node
from tests.own_node import PREFIX


def test_groups_of_dead_tests_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f"{PREFIX}{dead.pid}-ab", f"{PREFIX}{os.getpid()}-ab", "others"):
        (tmp_path / name).mkdir()
    own_node.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PREFIX}{os.getpid()}-ab", "others"]

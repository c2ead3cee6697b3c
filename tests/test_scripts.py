"""Every script in Python is checked like the package: a name without .py is not found by itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_python_script_is_typed_and_linted() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    files = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    python = {path for path in files if "python" in path.read_text().partition("\n")[0]}
    for listed in (tools["mypy"]["files"], tools["ruff"]["extend-include"]):
        assert {path for name in listed for path in ROOT.glob(name) if path.is_file()} == python

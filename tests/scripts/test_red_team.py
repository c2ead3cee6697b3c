"""``scripts/red-team``: on an honest folder it finds every attack that it makes, and it says if one is open."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tests" / "report"), *sys.path])
    loader = importlib.machinery.SourceFileLoader("red_team", str(ROOT / "scripts" / "red-team"))
    spec = importlib.util.spec_from_loader("red_team", loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    return made


def test_attacks_on_an_honest_folder(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tampering

    tampering.write_honest(tmp_path / "honest")
    few = ("tampered slice", "slices of another device", "stretched dates")
    monkeypatch.setattr(script.attacks, "ATTACKS", {name: script.attacks.ATTACKS[name] for name in few})
    own = {"a plugin of NCCL": script.run_attacks.ATTACKS["a plugin of NCCL"]}
    monkeypatch.setattr(script.run_attacks, "ATTACKS", own)
    monkeypatch.setattr(script.bundle_attacks, "HOSTILE", {"way out": script.bundle_attacks.HOSTILE["way out"]})
    (tmp_path / "place").mkdir()
    assert script.attacked(tmp_path / "honest", tmp_path / "place", "") == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines() if "  " in line)
    assert {name: lines[name].strip() for name in few} == {
        "tampered slice": "R3",
        "slices of another device": "doubt: copied-slices",
        "stretched dates": "R22",
    }
    assert lines["way out"].strip() == "refused"
    assert lines["all counts and steps x 1.4"].strip().startswith("documented: ")
    for case in (
        {"harmless": ("R3", tampering.record(lambda content: content["mnb"]["environment"].update(X="1")), "")},
        {"other rule": ("R1", tampering.record(tampering.one_slice), "")},
    ):
        monkeypatch.setattr(script.attacks, "ATTACKS", case)
        place = tmp_path / next(iter(case)).replace(" ", "-")
        place.mkdir()
        assert script.attacked(tmp_path / "honest", place, "") == 1
        assert "OPEN" in capsys.readouterr().out

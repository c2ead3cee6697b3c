"""A fleet that is given to a command for the results of one node: it says so, and what to give instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.fleet.bundling import pack_fleet
from tests.fleet.made_folders import session_folder, write_fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fleet(tmp_path_factory.mktemp("made") / "fleet", ("gpu1", "gpu2"))


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "bundle"])
def test_a_fleet_is_no_nodes_results(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool
) -> None:
    given = str(pack_fleet(fleet, tmp_path / "fleet.tar.gz").path if packed else fleet)
    node = str(session_folder(fleet, "gpu1", "screen"))
    bids = tmp_path / "bids.json"
    bids.write_text(json.dumps({"reference": "v100", "bids": {"acme": {"results": given, "price": 1}}}))
    for words in (
        ("summary", given),
        ("baseline", "build", given),
        ("report", node, "--compare", given),
        ("accept", given, node, "--guarantee", "0.97"),
        ("bids", str(bids)),
    ):
        assert call(words) in (1, 2), words
        told = capsys.readouterr()
        assert "a fleet, and this takes the results of one node" in " ".join((told.out + told.err).split()), words


def test_the_resume_of_one_node_names_that_of_a_fleet(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["resume", str(fleet)]) == 2
    assert f"mnb fleet resume {fleet}" in capsys.readouterr().err

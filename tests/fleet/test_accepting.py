"""Whether each node of a delivered fleet reaches the bid."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from pathlib import Path

import make_records
import pytest
from make_records import PER_GPU

from milabench_ng.cli import call
from milabench_ng.model.plan import Launch
from tests.fleet.made_folders import session_folder, write_frame

NODES = ("gpu1", "gpu2", "gpu3", "gpu4")


def run_of(path: Path, seed: int, level: float) -> None:
    """Six repeats of two tests in three sessions."""
    luck = random.Random(seed)
    noise = [1 + luck.gauss(0, 0.004) for _ in range(6)]

    def rate(launch: Launch, _: int) -> float:
        return 1e6 * level * noise[launch.run]

    whole = make_records.plan("standard", {"vae": PER_GPU, "toy_reg": PER_GPU}, 2, 6)
    make_records.write_run(path, whole, rate, 24, f"20260106-160000-{seed:06x}")
    make_records.divide_into_sessions(path, whole, 3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bid; of four nodes, one is 10 % slower, one is the bid's, and one left nothing."""
    here = tmp_path_factory.mktemp("accept")
    run_of(here / "bid", 1, 1.0)
    for number, (node, level) in enumerate(zip(NODES[:2], (1.0, 0.9), strict=True), 2):
        run_of(session_folder(here / "fleet", node, "screen"), number, level)
    shutil.copytree(here / "bid", session_folder(here / "fleet", "gpu3", "screen"))
    write_frame(here / "fleet", NODES, [])
    (here / "weights.json").write_text(json.dumps({f"standard.{test}": {"weight": 1} for test in ("vae", "toy_reg")}))
    return here


def test_every_node_is_judged_by_itself(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["accept", folders / "bid", folders / "fleet", "--weights", folders / "weights.json", "--format", "csv"]
    assert call(list(map(str, words))) == 1
    told = capsys.readouterr()
    rows = {row["node"]: row for row in csv.DictReader(io.StringIO(told.out))}
    assert {node: row["verdict"] for node, row in rows.items()} == {
        "gpu1": "meets",
        "gpu2": "violates",
        "gpu3": "inconclusive",
        "gpu4": "lost",
    }
    assert float(rows["gpu2"]["delivered / bid"]) == pytest.approx(0.9, abs=0.01)
    assert "same run as" in rows["gpu3"]["because"]
    assert "1 violates, 1 lost, 1 inconclusive, 1 meets (97% of the bid)" in told.err
    assert "up to 0.2 violate it by chance" in told.err
    assert call([*map(str, words), "--guarantee", "80%"]) == 1
    assert "1 lost, 1 inconclusive, 2 meet (80% of the bid)" in capsys.readouterr().err


def test_a_bundle_of_the_fleet_is_judged_as_the_fleet(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "fleet.tar.gz"
    assert call(["bundle", str(folders / "fleet"), "-o", str(bundle)]) == 0
    capsys.readouterr()
    printed = []
    for delivered in (folders / "fleet", bundle):
        words = ["accept", folders / "bid", delivered, "--weights", folders / "weights.json", "--format", "csv"]
        assert call(list(map(str, words))) == 1
        rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
        printed.append([(row["node"], row["verdict"], row["at least"]) for row in rows])
    assert printed[0] == printed[1]


def test_a_long_reason_is_told_whole(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(folders / "fleet", tmp_path / "fleet")
    for record in session_folder(tmp_path / "fleet", "gpu1", "screen").glob("*.J*.json"):
        record.write_text(record.read_text().replace("slices", "slicez"))
    words = ["accept", folders / "bid", tmp_path / "fleet", "--weights", folders / "weights.json"]
    printed = []
    for form in ("csv", "table"):
        call([*map(str, words), "--format", form])
        printed.append(capsys.readouterr().out)
    why = next(row["because"] for row in csv.DictReader(io.StringIO(printed[0])) if row["node"] == "gpu1")
    assert len(why) > 240
    assert why in printed[1]


def test_explain_is_of_one_node(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["accept", str(folders / "bid"), str(folders / "fleet"), "--explain"]) == 2
    assert "--explain: not for a fleet" in capsys.readouterr().err


def test_a_copy_of_a_good_node_is_no_second_node(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = tmp_path / "fleet"
    for node in ("gpu1", "gpu2"):
        shutil.copytree(session_folder(folders / "fleet", "gpu1", "screen"), session_folder(fleet, node, "screen"))
    write_frame(fleet, ("gpu1", "gpu2"), [])
    words = ["accept", folders / "bid", fleet, "--weights", folders / "weights.json", "--format", "csv"]
    assert call(list(map(str, words))) == 4
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    verdicts = {row["node"]: (row["verdict"], row["because"]) for row in (first, second)}
    assert verdicts["gpu1"][0] == "meets"
    assert verdicts["gpu2"][0] == "inconclusive"
    assert "gpu2 is a copy of gpu1" in verdicts["gpu2"][1]

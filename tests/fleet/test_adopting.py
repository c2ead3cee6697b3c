"""Kubernetes: the Job is this one and its client knows every key; what pods leave becomes a fleet folder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from make_records import PER_GPU, plan, write_run

from milabench_ng.cli import call
from milabench_ng.fleet.adopting import adopt
from milabench_ng.fleet.folder import FleetFolder, is_fleet
from milabench_ng.fleet.rendering.indexed_job import JobRequest, indexed_job
from milabench_ng.fleet.summaries import summaries
from milabench_ng.fleet.writer import FleetWriter
from tests.fleet.made_folders import write_session
from tests.fleet.stand_in import make_stand_in

GOLDEN = Path(__file__).parent / "data" / "indexed_job.json"
ASKED = JobRequest(
    name="acceptance",
    nodes=16,
    gpus=8,
    image="registry/mnb:0.3",
    claim="results",
    suite="tiny",
    profile='{"vae": {"workload": "vae"}}',
    arguments=("--repeat", "3", "--nonce", "it's"),
)


def test_the_job_is_this_one() -> None:
    assert indexed_job(ASKED) == GOLDEN.read_text()


def test_the_client_of_kubernetes_knows_every_key() -> None:
    api = ApiClient()
    for made in json.loads(GOLDEN.read_text())["items"]:
        found: Any = api.deserialize(json.dumps(made), f"V1{made['kind']}", "application/json")
        assert api.sanitize_for_serialization(found) == made, "a key that it does not know would be missing"


def test_a_node_without_gpus_asks_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("quick", "--nodes", "2", "--image", "i", "--claim", "c", "--gpus", "0")
    assert call(("fleet", "render", "k8s", *words)) == 0
    job = json.loads(capsys.readouterr().out)["items"][1]
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == {}
    assert call(("fleet", "render", "k8s", *words, "--jobs", "-o x")) == 2


def test_bundles_of_nodes_are_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "results"
    for node in ("gpu1", "gpu2"):
        write_session(tmp_path / node, node, "screen", lambda *_: 1.0)
        (folder / "nodes" / node).mkdir(parents=True)
        assert call(("bundle", str(tmp_path / node), "-o", str(folder / "nodes" / node / "screen.tar.gz"))) == 0
    assert call(("fleet", "adopt", str(folder))) == 0
    assert [one.state for one in FleetFolder.read(folder).standings.values()] == ["ended", "ended"]
    assert call(("verify", str(folder))) == 0, capsys.readouterr().out


def test_retests_are_adopted_with_the_first_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for node, session in (("gpu1", "screen"), ("gpu1", "retest-1"), ("gpu2", "screen")):
        write_session(tmp_path / "nodes" / node / session, node, session, lambda *_: 1.0)
    assert call(("fleet", "adopt", str(tmp_path))) == 0
    found = FleetFolder.read(tmp_path).standings
    assert all(one.here for one in found.values())
    assert ("gpu1", "retest-1") in found
    assert call(("verify", str(tmp_path))) == 0, capsys.readouterr().out


def test_results_one_folder_too_deep_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = tmp_path / "nodes" / "gpu1" / "screen" / "results"
    write_session(deep, "gpu1", "screen", lambda *_: 1.0)
    assert call(("fleet", "adopt", str(tmp_path))) == 2
    assert f"Some are in {deep}: move them" in capsys.readouterr().err


def test_what_lies_where_it_should_not_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = tmp_path / "nodes" / "gpu1"
    node.mkdir(parents=True)
    (tmp_path / "gpu1.tar.gz").touch()
    assert call(("fleet", "adopt", str(tmp_path))) == 2
    assert f"Some are in {tmp_path / 'gpu1.tar.gz'}: move them" in capsys.readouterr().err
    write_session(node / "screen", "gpu1", "screen", lambda *_: 1.0)
    assert call(("fleet", "adopt", str(tmp_path / "nodes"))) == 2
    assert f"Give the folder that it is in: {tmp_path}" in capsys.readouterr().err
    assert call(("bundle", str(node / "screen"), "-o", str(node / "screen.tar.gz"))) == 0
    assert call(("fleet", "adopt", str(tmp_path))) == 2
    assert f"{tmp_path}/nodes: gpu1/screen cannot be of a fleet" in capsys.readouterr().err


def test_nodes_that_ran_different_profiles_are_no_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for node in ("gpu1", "gpu3"):
        write_session(tmp_path / "nodes" / node / "screen", node, "screen", lambda *_: 1.0)
    write_run(tmp_path / "nodes" / "gpu2" / "screen", plan("quick", {"vae": PER_GPU}, 1, 1))
    assert call(("fleet", "adopt", str(tmp_path))) == 2
    assert re.search(r"standard \(\w{12}\) on gpu1, gpu3; quick \(\w{12}\) on gpu2\. ", capsys.readouterr().err)
    assert not is_fleet(tmp_path)


def test_results_that_were_replaced_are_adopted_with_their_own_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `mnb fleet status` says of a node whose results were not those that were wanted."""
    screen = tmp_path / "nodes" / "gpu1" / "screen"
    for made_on in ("gpu1", "gpu2"):
        shutil.rmtree(screen, ignore_errors=True)
        for file in tmp_path.glob("fleet.json*"):
            file.unlink()
        write_session(screen, made_on, "screen", lambda *_: 1.0)
        assert call(("fleet", "adopt", str(tmp_path))) == 0
    assert call(("verify", str(tmp_path))) == 0, capsys.readouterr().out


def test_one_bad_manifest_is_that_nodes_own_problem(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    for node in ("gpu1", "gpu2"):
        write_session(folder / "nodes" / node / "screen", node, "screen", lambda *_: 1.0)
    (folder / "nodes/gpu1/screen/run.json").write_text("{")
    (folder / "fleet.jsonl").write_text("of an adoption that was cut short\n")
    assert call(("fleet", "adopt", str(folder))) == 0
    found = FleetFolder.read(folder)
    assert found.ledger.problems == ()
    problems = {one.session.node: one.problem for one in summaries(found)}
    assert "run.json" in problems["gpu1"]
    assert problems["gpu2"] == ""
    assert (folder / "nodes/gpu2/screen.summary.json").exists()


def test_an_adoption_that_is_cut_short_leaves_no_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "results"
    write_session(folder / "nodes" / "gpu1" / "screen", "gpu1", "screen", lambda *_: 1.0)

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FleetWriter, "tell", cut)
        with pytest.raises(KeyboardInterrupt):
            adopt(folder, (), ("mnb",))
    assert not is_fleet(folder)
    assert adopt(folder, (), ("mnb",)).ledger.problems == ()


def test_what_pods_leave_becomes_a_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in = make_stand_in(tmp_path / "mnb")
    script = json.loads(GOLDEN.read_text())["items"][1]["spec"]["template"]["spec"]["containers"][0]["command"][2]
    folder = tmp_path / "results"
    for node in ("gpu1", "gpu2"):
        scratch = tmp_path / node
        scratch.mkdir()
        here = script.replace("/scratch", str(scratch)).replace("/results", str(folder))
        environment = {"PATH": f"{stand_in.folder}:/usr/bin:/bin", "NODE": node}
        subprocess.run(["sh", "-c", here], env=environment, cwd=scratch, check=True)
    shutil.copytree(stand_in.folder / "results", folder / "nodes" / "gpu3" / "screen")
    ledger = folder / "nodes" / "gpu3" / "screen" / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    assert call(("fleet", "adopt", str(folder), "--hosts", "gpu[1,3-4]")) == 1
    told = capsys.readouterr()
    assert "--hosts does not name gpu2. Nodes with results are in the fleet" in told.err
    (following,) = (line for line in told.out.splitlines() if line.startswith("next"))
    assert following.endswith("remove fleet.json and fleet.jsonl, and adopt again")
    found = FleetFolder.read(folder)
    assert found.manifest.nodes == ("gpu1", "gpu3", "gpu4", "gpu2"), "as they are named, then the others"
    assert {node: (one.state, one.collected) for (node, _), one in found.standings.items()} == {
        "gpu1": ("ended", True),
        "gpu2": ("ended", True),
        "gpu3": ("lost", True),
        "gpu4": ("lost", False),
    }

    assert "--nonce it's" in (folder / "nodes/gpu1/screen.log").read_text()
    assert call(("report", str(folder))) == 1, "lost nodes do not pass"
    capsys.readouterr()
    assert call(("fleet", "resume", str(folder))) == 2
    assert "its nodes cannot be reached from here" in capsys.readouterr().err
    assert call(("fleet", "adopt", str(folder))) == 2
    assert "it is a fleet folder already" in capsys.readouterr().err
    assert call(("fleet", "adopt", str(tmp_path / "mnb"))) == 2
    assert "no results of nodes" in capsys.readouterr().err

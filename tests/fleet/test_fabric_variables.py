"""The caller's variables of the fabric reach `mnb` on every node: a switch that is lost can cost a host its GPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from milabench_ng.cli import call
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers.interface import NODE_WORD
from milabench_ng.fleet.launchers.local import Local
from milabench_ng.fleet.manifest import encode_fleet_manifest
from milabench_ng.fleet.node_scripts import meeting_script, run_script
from milabench_ng.fleet.rendering.slurm_script import slurm_script
from milabench_ng.records.names import FLEET_MANIFEST
from tests.fleet.made_folders import write_fleet
from tests.fleet.test_local_fleet import manifest

SWITCHES = {
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "UCX_TLS": 'it\'s "rc" $HOME\nnow',
}


def test_they_reach_the_run_on_a_node(tmp_path: Path) -> None:
    tells = ("sh", "-c", 'printf "%s|" "$NVSHMEM_DISABLE_NVLS" "$UCX_TLS" "$1" >>told', "mnb")
    asked = msgspec.structs.replace(manifest(Local(("a",)), tmp_path, tells), variables=SWITCHES)
    script = run_script(asked, "screen").replace(NODE_WORD, "a")
    subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert (tmp_path / "a" / "told").read_text().startswith(f"1|{SWITCHES['UCX_TLS']}|jobs|")


def test_they_reach_the_nodes_that_meet_and_the_job_of_slurm(tmp_path: Path) -> None:
    asked = msgspec.structs.replace(manifest(Local(("a",)), tmp_path), variables=SWITCHES)
    lines = "export TORCH_SYMM_MEM_DISABLE_MULTICAST=1\n"
    assert lines in meeting_script(asked, "127.0.0.1", 1, 1.0)
    options = ("--export=NONE",)
    script = slurm_script(1, ("mnb", "fleet", "run"), options, "log", SWITCHES)
    assert script.index("#SBATCH --export=NONE\n") < script.index(lines) < script.index("exec mnb fleet run\n")


def test_a_script_and_a_job_have_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    assert call(("fleet", "render", "slurm", "quick", "--nodes", "2", "-o", "/x/f")) == 0
    assert "\nexport NCCL_NVLS_ENABLE=0\n" in capsys.readouterr().out
    assert call(("fleet", "render", "k8s", "quick", "--nodes", "2", "--image", "mnb", "--claim", "results")) == 0
    kubernetes = msgspec.json.decode(capsys.readouterr().out)
    (container,) = kubernetes["items"][1]["spec"]["template"]["spec"]["containers"]
    assert {"name": "NCCL_NVLS_ENABLE", "value": "0"} in container["env"]


def test_a_fleet_goes_on_with_those_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", ("a", "b"))
    made = msgspec.structs.replace(FleetFolder.read(folder).manifest, variables={"NCCL_NVLS_ENABLE": "1"})
    (folder / FLEET_MANIFEST).write_bytes(encode_fleet_manifest(made))
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    assert call(("fleet", "resume", str(folder))) == 2
    told = capsys.readouterr().err
    assert "NCCL_NVLS_ENABLE=0 is set here, and the nodes of this fleet had NCCL_NVLS_ENABLE=1" in told
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    assert call(("fleet", "resume", str(folder))) != 2
    monkeypatch.setenv("NVSHMEM_DISABLE_NVLS", "1")
    assert call(("fleet", "resume", str(folder))) == 2
    assert "had no NVSHMEM_DISABLE_NVLS" in capsys.readouterr().err

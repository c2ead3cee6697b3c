"""The guide for a cluster, followed to its end with two nodes of this machine and runs of seconds."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, blocks

from milabench_ng.fleet.burn_in import BurnIn
from milabench_ng.fleet.folder import FleetFolder
from tests.fleet.stand_in import make_stand_in

GUIDE = ROOT / "docs" / "how-to" / "accept-a-cluster.md"
SMALL = {
    "fleet run standard": "fleet run tiny.json",
    "--launcher ssh --hosts 'gpu[001-016]'": "--launcher local --nodes 2 --node-folder $PWD/there",
    "--launcher slurm --nodes 16": "--launcher local --nodes 2 --node-folder $PWD/there",
    " -- --partition=gpu --time=6:00:00": "",
    "--repeat 3 --isolation full": "--repeat 1 --isolation none --tenants 1 --window 0.5",
    "--jobs '--repeat 3' -o": "--jobs '--isolation none --tenants 1 --window 0.5' -o",
    "--common-start 60s": "--jobs '--isolation none --tenants 1 --window 0.5' --common-start 5s",
    "--over-nodes": "--over-nodes --jobs '--window 0.5'",
    "--for 12h": "--jobs '--isolation none --tenants 1 --window 0.5' --for 10s",
}
"""What a run of seconds on this machine has instead of what the guide says."""
SPREAD = """\
{"toy_reg": {"workload": "toy_reg"},
 "spread": {"workload": "collectives", "least_devices": 2,
            "arguments": {"small_kib": 1, "large_mib": 1, "block_mib": 1, "exchange_mib": 1}}}
"""
"""With a launch of two ranks whose steps take no time; `tests/fleet/test_ssh_launcher.py` trains over nodes."""
BRIEFER = ("-o under-slurm", "-o together", "-o with-network", "-o over-nodes", "-o burn-in")
"""Fleets whose nodes have a stand-in for mnb: another real run would show nothing more."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_of_the_guide_works(tmp_path: Path) -> None:
    stand_in = make_stand_in(tmp_path / "stand-in")
    profile = (stand_in.folder / "tiny.json").read_text()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mnb").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m milabench_ng "$@"\n')
    (programs / "mnb").chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",  # both nodes share the CPUs of this machine
    }
    commands = [text.strip() for language, text in blocks(GUIDE) if language == "sh"]
    assert len(commands) == 16
    for stated in commands:
        command = stated
        for of_cluster, small in SMALL.items():
            command = command.replace(of_cluster, small)
        for output in BRIEFER:
            command = command.replace(output, f"--mnb {stand_in.command} {output}")
        if "adopt" in command:
            (tmp_path / "results").mkdir()
            (tmp_path / "acceptance" / "nodes").rename(tmp_path / "results" / "nodes")  # as a volume has them
        (tmp_path / "tiny.json").write_text(SPREAD if "--over-nodes" in command else profile)
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=300
        )
        assert "Traceback" not in done.stderr
        told = f"{command}\n{done.stdout}{done.stderr}"
        if stated.startswith("mnb verify"):  # of such windows, only their length is wrong
            assert (done.returncode, done.stdout.count("R35"), done.stdout.count("FAIL ")) == (1, 2, 2), told
            continue
        judged = stated.startswith(("mnb report", "mnb fleet run", "mnb fleet resume"))
        assert done.returncode == (3 if judged else 0), f"of two nodes, nobody can say which is slow: {told}"
        if "adopt" in command:
            (tmp_path / "results" / "nodes").rename(tmp_path / "acceptance" / "nodes")
    for name in ("acceptance", "under-slurm", "together", "with-network", "over-nodes", "burn-in"):
        found = FleetFolder.read(tmp_path / name)
        assert [one.state for one in found.standings.values()] == ["ended", "ended"]
    assert '"completions": 16' in (tmp_path / "job.json").read_text()
    assert "#SBATCH --nodes=16" in (tmp_path / "job.sbatch").read_text()


def test_the_figures_of_the_burn_in_are_those_of_such_counts() -> None:
    shown = BurnIn(node_hours=192.0, early=8, late=1)
    low, high = shown.interval
    text = GUIDE.read_text()
    assert f"{shown.rate:.3g} per node-hour (95% CI {low:.3g} to {high:.3g})" in text
    assert f"first half of the time {shown.early}, second half {shown.late} (p = {shown.chance:.2g})" in text

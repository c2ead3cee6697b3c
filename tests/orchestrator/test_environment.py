"""What of the caller's environment reaches a worker, and what does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench_ng.orchestrator.execution.environment import worker_environment
from milabench_ng.requests import python_command

KEPT = (
    *("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "NCCL_DEBUG"),
    *("NCCL_NET_PLUGIN", "NVSHMEM_DEBUG", "TORCH_LOGS", "PYTORCH_ALLOC_CONF", "OMP_NUM_THREADS", "MNB_DATAROOT"),
)
DROPPED = (
    *("LD_PRELOAD", "LD_AUDIT", "LD_DEBUG", "GLIBC_TUNABLES", "MALLOC_CONF", "BASH_ENV"),
    *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONUSERBASE", "PYTHONBREAKPOINT"),
    *("CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NVTX_INJECTION64_PATH", "CUDA_PROFILE", "COMPUTE_PROFILE"),
    *("COMPUTE_PROFILE_CONFIG", "NCCL_INJECTION", "OMP_TOOL_LIBRARIES", "NSYS_MPI_STORE_TEAMS_PER_RANK"),
)
SILENT = ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "EDITOR")


def test_every_variable_is_kept_or_dropped_and_those_that_load_code_are_named() -> None:
    environ = dict.fromkeys((*KEPT, *DROPPED, *SILENT), "x")
    made, dropped = worker_environment(environ, {"TMPDIR": "/scratch"})
    assert set(made) == {*KEPT, "TMPDIR"}
    assert dropped == tuple(sorted(DROPPED))


def test_what_mnb_sets_itself_is_on_top() -> None:
    assert worker_environment({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})[0] == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID"
    }


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path whose site hooks write a file when they run, and which has a module that is asked
    for."""
    for name in ("sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n")
    (tmp_path / "asked.py").write_text(
        "import json, os, sys\n"
        "print(json.dumps([sys.argv[1:], sys.path, sys.prefix, 'torch' in sys.modules, sorted(os.environ)]))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_worker_runs_no_site_hook_and_has_the_import_path_that_it_was_given(hostile: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(hostile), "PYTHONSTARTUP": str(hostile / "sitecustomize.py")}
    plainly = subprocess.run([sys.executable, "-c", ""], env=environ, check=True)
    assert plainly.returncode == 0
    assert (hostile / "ran").read_text().startswith("sitecustomize")  # the hook works where nobody stops it
    (hostile / "ran").unlink()
    command = python_command("asked", "a", "b c")
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, cwd="/")
    arguments, path, prefix, _, _ = json.loads(done.stdout)
    assert (arguments, path, prefix) == (["a", "b c"], sys.path, sys.prefix)
    assert not (hostile / "ran").exists()


def test_not_even_one_of_the_environments_own_site(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    command = python_command("site", "--user-base")
    command[0] = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([command[0], "-I", "-c", ""], check=True)
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    subprocess.run(command, check=False, capture_output=True)
    assert not (tmp_path / "ran").exists()

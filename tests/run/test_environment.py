"""What of the caller's environment reaches a worker, and what does not."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
import types
from pathlib import Path

import pytest

from milabench_ng.records.worker_variables import listed
from milabench_ng.run.execution.environment import PYCACHE, worker_environment
from milabench_ng.worker.requests import import_path, python_command

KEPT = (
    *("PATH", "HOME", "CUDA_HOME", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "NCCL_DEBUG"),
    *("NVSHMEM_DEBUG", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "MNB_DATAROOT"),
    *("NVIDIA_PYTORCH_VERSION", "PYTORCH_BUILD_VERSION", "CUDNN_VERSION", "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS"),
)
DROPPED = (
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "LD_DEBUG", "GLIBC_TUNABLES", "MALLOC_CONF", "BASH_ENV"),
    *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONUSERBASE", "PYTHONBREAKPOINT"),
    *("CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH", "NVTX_INJECTION64_PATH", "CUDA_PROFILE", "COMPUTE_PROFILE"),
    *("COMPUTE_PROFILE_CONFIG", "NCCL_INJECTION", "OMP_TOOL_LIBRARIES", "NSYS_MPI_STORE_TEAMS_PER_RANK"),
    *("NCCL_NET_PLUGIN", "UCX_MODULE_DIR", "TORCH_LOGS", "PYTORCH_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"),
)
SILENT = (
    *("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "EDITOR", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"),
    *("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "MKL_NUM_THREADS"),
)


def test_every_variable_is_kept_or_dropped_and_those_that_load_code_are_named() -> None:
    """What a closed run may have, and no more: an NGC image sets some that force a precision."""
    environ = dict.fromkeys((*KEPT, *DROPPED, *SILENT), "x")
    made, dropped = worker_environment(environ, {"TMPDIR": "/scratch"})
    assert set(made) == {*KEPT, "TMPDIR", "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    assert dropped == tuple(sorted(DROPPED))
    assert all(listed(name) for name in made)


def test_a_variable_that_is_demanded_is_passed_on() -> None:
    made, dropped = worker_environment({"LD_LIBRARY_PATH": "/a", "LD_PRELOAD": "/b"}, {}, ("LD_LIBRARY_PATH", "OTHER"))
    assert made["LD_LIBRARY_PATH"] == "/a"
    assert dropped == ("LD_PRELOAD",)


def test_torch_imports_no_entry_point_whatever_the_user_says() -> None:
    assert worker_environment({"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}, {})[0] == {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_what_mnb_sets_itself_is_on_top() -> None:
    made, _ = worker_environment({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert made["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


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
    command = python_command({}, "asked", "a", "b c")
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, cwd="/")
    arguments, path, prefix, _, _ = json.loads(done.stdout)
    assert (arguments, path, prefix) == (["a", "b c"], sys.path, sys.prefix)
    assert not (hostile / "ran").exists()


def test_neither_a_hook_of_the_environments_own_site_nor_a_pth_file_is_run(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    ran = [tmp_path / "hook-ran", tmp_path / "pth-ran"]
    (site / "sitecustomize.py").write_text(f"open({str(ran[0])!r}, 'w')\n")
    (site / "odd.pth").write_text(f"import os; open({str(ran[1])!r}, 'w').close()\n")
    command = python_command({}, "site", "--user-base")
    command[0] = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([command[0], "-I", "-c", ""], check=True)
    for path in ran:
        path.unlink()  # they run where nobody stops them
    subprocess.run(command, check=False, capture_output=True)
    assert not any(path.exists() for path in ran)


def run_asked(environ: dict[str, str]) -> str:
    command = python_command(environ, "asked")
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout.strip()


def test_a_compiled_module_beside_its_source_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "asked.py"
    source.write_text("print('forged')\n")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    source.write_text("print('honest')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run_asked({}) == "forged"
    assert run_asked({PYCACHE: str(tmp_path / "new")}) == "honest"


def test_a_package_that_an_editable_install_maps_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """setuptools installs such a finder by a .pth file, which workers do not run."""
    (tmp_path / "src" / "asked").mkdir(parents=True)
    (tmp_path / "src" / "asked" / "__init__.py").write_text("")
    (tmp_path / "src" / "asked" / "__main__.py").write_text("print('found')\n")
    finder = types.ModuleType("__editable___asked_1_0_finder")
    finder.MAPPING = {"asked": str(tmp_path / "src" / "asked")}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    assert run_asked({}) == "found"


def test_another_thread_may_import_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(str):
        """A name that is looked at while another thread adds a module."""

        __slots__ = ()

        def startswith(self, *_: object) -> bool:
            monkeypatch.setitem(sys.modules, "mnb_arrives", types.ModuleType("mnb_arrives"))
            return False

    monkeypatch.setitem(sys.modules, Busy("mnb_busy"), types.ModuleType("mnb_busy"))
    assert import_path()[: len(sys.path)] == sys.path

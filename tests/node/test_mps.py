"""Whether an operator runs NVIDIA's Multi-Process Service, from a made-up root folder."""

from __future__ import annotations

from pathlib import Path

from milabench_ng.node.inventory import find_mps


def daemon(root: Path, pipes: str, pid: int | None = None) -> Path:
    folder = root / pipes.lstrip("/")
    folder.mkdir(parents=True)
    (folder / "control").touch()
    if pid is not None:
        (root / f"proc/{pid}").mkdir(parents=True)
        (root / f"proc/{pid}/comm").write_text("nvidia-cuda-mps\n")
    return root


def test_without_a_control_pipe_there_is_none(tmp_path: Path) -> None:
    assert find_mps({}, tmp_path) is None
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    assert find_mps({}, tmp_path) is None, "a folder that a daemon has left"


def test_the_daemon_is_where_cuda_looks_for_it(tmp_path: Path) -> None:
    daemon(tmp_path, "/tmp/nvidia-mps", 321)
    assert find_mps({}, tmp_path) == "/tmp/nvidia-mps, process 321"
    assert find_mps({"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}, tmp_path) is None, "programs look there only"


def test_a_daemon_outside_the_container_has_no_process_here(tmp_path: Path) -> None:
    daemon(tmp_path, "/run/mps")
    assert find_mps({"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}, tmp_path) == "/run/mps, no process seen"

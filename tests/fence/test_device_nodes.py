"""The driver's device files are made before any tenant is without the right to make them."""

from __future__ import annotations

from pathlib import Path

from milabench_ng.node.drivers.nvml.device_nodes import missing


def test_unified_memory_and_mig_instances_get_their_files(tmp_path: Path) -> None:
    assert list(missing(tmp_path)) == []
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    instance = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1"
    (instance / "ci0").mkdir(parents=True)
    (instance / "access").touch()
    (instance / "ci0/access").touch()
    place = "/proc/driver/nvidia/capabilities/gpu0/mig/gi1"
    mig = [["nvidia-modprobe", "-f", f"{place}/{name}"] for name in ("access", "ci0/access")]
    assert list(missing(tmp_path)) == [["nvidia-modprobe", "-u", "-c=0"], *mig]
    (tmp_path / "dev/nvidia-uvm").touch()
    assert list(missing(tmp_path)) == mig

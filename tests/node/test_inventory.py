"""What the node is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from milabench_ng.node.inventory import cuda_build, read_inventory, read_versions


def test_this_machine() -> None:
    inventory = read_inventory()
    assert inventory.cpus.threads == os.cpu_count()
    assert 1 <= inventory.cpus.sockets <= inventory.cpus.cores <= inventory.cpus.threads
    assert inventory.memory_bytes > 1 << 28
    assert inventory.kernel == os.uname().release
    assert inventory.gpus or inventory.gpu_notes


def test_versions_are_those_of_the_metadata_and_nothing_is_imported() -> None:
    script = (
        "import sys; from milabench_ng.node.inventory import read_versions; versions = read_versions();"
        "from importlib.metadata import version;"
        "assert versions['torch'] == version('torch'), versions; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert read_versions()["python"] == ".".join(str(part) for part in sys.version_info[:3])


@pytest.mark.parametrize(
    ("torch", "bindings"),
    [("2.11.0+cu130", ["nvidia-ml-py"]), ("2.11.0+rocm6.4", ["amdsmi"]), ("2.15.0+cpu", ["nvidia-ml-py", "amdsmi"])],
)
def test_bindings_to_drivers_that_torch_cannot_use_are_no_part_of_the_software(
    monkeypatch: pytest.MonkeyPatch, torch: str, bindings: list[str]
) -> None:
    """An extra that is installed for nothing would keep two runs from being compared."""
    monkeypatch.setattr("importlib.metadata.version", lambda name: torch if name == "torch" else "1")
    assert [name for name in read_versions() if name in ("nvidia-ml-py", "amdsmi")] == bindings


@pytest.mark.parametrize(
    ("torch", "runtime", "cuda"),
    [
        ("2.11.0+cu130", "13.2.86", "13.0"),
        ("2.11.0+cu128", None, "12.8"),
        ("2.15.0", "13.2.86", "13.2"),
        ("2.15.0+cpu", "13.2.86", None),
        ("2.15.0", None, None),
        ("", "13.2.86", None),
    ],
)
def test_cuda_build(torch: str, runtime: str | None, cuda: str | None) -> None:
    assert cuda_build(torch, runtime) == cuda


@pytest.mark.parametrize(
    ("flags", "files", "name"),
    [
        ("fpu hypervisor", {"proc/cmdline": "quiet --firecracker-init"}, "Firecracker"),
        ("fpu hypervisor", {"sys/class/dmi/id/sys_vendor": "QEMU"}, "QEMU"),
        ("fpu hypervisor", {}, "unknown hypervisor"),
        ("fpu", {"sys/class/dmi/id/sys_vendor": "Amazon EC2"}, None),
    ],
)
def test_virtualization(tmp_path: Path, flags: str, files: dict[str, str], name: str | None) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the CPU flag 'hypervisor' is of x86")
    base = {
        "sys/devices/system/cpu/online": "0",
        "proc/meminfo": "MemTotal: 1 kB",
        "proc/cpuinfo": f"model name : Toy 3000\nflags : {flags}",
    }
    for path, text in (base | files).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")
    inventory = read_inventory(root=tmp_path)
    assert (inventory.virtualization, inventory.cpus.model, inventory.cpus.threads) == (name, "Toy 3000", 1)

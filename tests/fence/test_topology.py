"""The topology of a made-up machine: two nodes, threads as siblings, one CPU offline, one isolated."""

from __future__ import annotations

from pathlib import Path

from milabench_ng.node.topology import Cpu, read_topology


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_two_nodes_with_threads(tmp_path: Path) -> None:
    system = {
        "cpu/online": "0-6",
        "cpu/isolated": "3",
        "node/online": "0-1",
        "node/node0/cpulist": "0-1,4-5",
        "node/node0/meminfo": "Node 0 MemTotal:       1000 kB\nNode 0 MemFree: 5 kB",
        "node/node1/cpulist": "2-3,6-7",
        "node/node1/meminfo": "Node 1 MemTotal:       2000 kB",
    }
    for cpu in range(7):
        core, package = cpu % 4, cpu % 4 // 2
        siblings = f"{core},{core + 4}" if core < 3 else "3"
        first = 2 * package
        system |= {
            f"cpu/cpu{cpu}/topology/thread_siblings_list": siblings,
            f"cpu/cpu{cpu}/topology/physical_package_id": str(package),
            f"cpu/cpu{cpu}/cache/index0/level": "1",
            f"cpu/cpu{cpu}/cache/index0/shared_cpu_list": siblings,
            f"cpu/cpu{cpu}/cache/index3/level": "3",
            f"cpu/cpu{cpu}/cache/index3/shared_cpu_list": f"{first}-{first + 1},{first + 4}-{first + 5}",
        }
    put(tmp_path / "sys/devices/system", system)
    meminfo = "MemTotal: 3000 kB\nSwapTotal: 7 kB\nHugePages_Total: 2\nHugepagesize: 2048 kB"
    put(tmp_path / "proc", {"meminfo": meminfo})
    found = read_topology(tmp_path / "sys", tmp_path / "proc")
    assert found.online == (0, 1, 2, 3, 4, 5, 6)
    assert found.cpus[5] == Cpu(id=5, core=1, package=0, node=0, cache=0)
    assert found.cpus[6] == Cpu(id=6, core=2, package=1, node=1, cache=2)
    assert found.isolated == (3,)
    assert [(node.cpus, node.memory_bytes) for node in found.nodes] == [((0, 1, 4, 5), 1024000), ((2, 3, 6), 2048000)]
    assert (found.memory_bytes, found.swap_bytes, found.hugepages_bytes) == (3072000, 7168, 4 << 20)


def test_a_kernel_without_numa_or_caches(tmp_path: Path) -> None:
    put(tmp_path / "sys/devices/system", {"cpu/online": "0-1"})
    put(tmp_path / "proc", {"meminfo": "MemTotal: 3000 kB"})
    found = read_topology(tmp_path / "sys", tmp_path / "proc")
    assert [(node.id, node.cpus, node.memory_bytes) for node in found.nodes] == [(0, (0, 1), 3072000)]
    assert found.cpus[1] == Cpu(1, 1, 0, 0, 0)


def test_this_machine() -> None:
    found = read_topology()
    assert found.online
    assert found.memory_bytes > 0
    assert {cpu.node for cpu in found.cpus} <= {node.id for node in found.nodes}

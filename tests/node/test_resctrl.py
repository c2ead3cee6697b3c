"""What resctrl offers, from the files of a node with Intel RDT as its kernel's documentation has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milabench_ng.node.resctrl import LastLevelCache, Resctrl, read_resctrl

RDT = {
    "L3/cbm_mask": "7ff",
    "L3/min_cbm_bits": "1",
    "L3/num_closids": "16",
    "MB/bandwidth_gran": "10",
    "MB/min_bandwidth": "10",
    "MB/num_closids": "8",
    "L3/shareable_bits": "600",
    "L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes",
    "L3_MON/num_rmids": "144",
}


SCHEMATA = "    MB:0=100;1=100\n    L3:0=7ff;1=7ff"
"""Of the root group, of a node with two sockets."""


def node(root: Path, files: dict[str, str] | None, filesystems: str = "nodev\tresctrl\n") -> Path:
    """A root folder with these files of ``info``, and four CPUs; None where nothing is mounted."""
    (root / "proc").mkdir()
    (root / "proc/filesystems").write_text(f"nodev\tsysfs\n{filesystems}\text4\n")
    (root / "sys/fs/resctrl").mkdir(parents=True)
    for name, text in (files or {}).items():
        path = root / "sys/fs/resctrl/info" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    if files is not None:
        (root / "sys/fs/resctrl/schemata").write_text(f"{SCHEMATA}\n")
        (root / "sys/fs/resctrl/mon_groups").mkdir()
    for cpu in range(4):
        for index, (level, number) in enumerate([("1", cpu), ("1", cpu), ("2", cpu), ("3", cpu // 2)]):
            cache = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            cache.mkdir(parents=True)
            (cache / "level").write_text(f"{level}\n")
            (cache / "id").write_text(f"{number}\n")
    return root


def tree(root: Path) -> set[Path]:
    return set(root.rglob("*"))


def test_a_node_with_rdt(tmp_path: Path) -> None:
    there = tree(node(tmp_path, RDT))
    found = read_resctrl(tmp_path)
    assert found == Resctrl(
        classes=8,
        cache_parts=11,
        cache_mask=0x7FF,
        least_cache_parts=1,
        hardware_mask=0x600,
        least_bandwidth_pct=10,
        bandwidth_step_pct=10,
        caches=(LastLevelCache(0, (0, 1)), LastLevelCache(1, (2, 3))),
        counted=("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"),
    )
    assert found.text == (
        "divides last-level cache in 11 parts for 8 groups and memory bandwidth from 10% on; "
        "counts llc_occupancy, mbm_total_bytes, mbm_local_bytes"
    )
    assert tree(tmp_path) == there, "nothing is made"


def test_groups_of_others_are_counted_and_our_own_are_not(tmp_path: Path) -> None:
    place = node(tmp_path, RDT) / "sys/fs/resctrl"
    for name in ("database", "mnb-run-b0-d0"):
        (place / name).mkdir()
    assert read_resctrl(tmp_path).groups == 1


def test_what_this_user_cannot_write_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node(tmp_path, RDT)
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = read_resctrl(tmp_path)
    assert found.closed == "/sys/fs/resctrl is not writable. Run as root, and mount it writable"
    assert found.text.startswith("divides last-level cache"), "what is offered is read all the same"


def test_bandwidth_of_amd_is_no_percentage(tmp_path: Path) -> None:
    """There, it is in eighths of GB/s, up to a number that says nothing of what the memory can do."""
    place = node(tmp_path, RDT | {"MB/min_bandwidth": "0", "MB/bandwidth_gran": "1"}) / "sys/fs/resctrl"
    (place / "schemata").write_text("    MB:0=2048;1=2048\n    L3:0=ffff;1=ffff\n")
    assert read_resctrl(tmp_path).least_bandwidth_pct is None


def test_a_node_that_only_counts(tmp_path: Path) -> None:
    node(tmp_path, {name: text for name, text in RDT.items() if name.startswith("L3_MON")})
    assert read_resctrl(tmp_path).text.startswith("divides nothing; counts llc_occupancy, ")


def test_where_it_is_not_mounted_the_command_is_named(tmp_path: Path) -> None:
    node(tmp_path, None)
    assert read_resctrl(tmp_path).text == ("/sys/fs/resctrl is not mounted (mount -t resctrl resctrl /sys/fs/resctrl)")


def test_where_nothing_offers_it_that_is_said(tmp_path: Path) -> None:
    node(tmp_path, None, filesystems="")
    assert read_resctrl(tmp_path).text.startswith("not offered by this kernel and processor")

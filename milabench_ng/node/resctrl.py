"""Reads what the kernel can divide and count of caches and memory bandwidth (Intel RDT, AMD QoS).

Kernel documentation: filesystems/resctrl. ``mnb`` mounts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from milabench_ng.node.kernel_files import kernel_text

RESCTRL = Path("/sys/fs/resctrl")
PREFIX = "mnb-"
"""The names of the groups that ``mnb`` makes begin with it."""
_OWN = frozenset({"info", "mon_groups", "mon_data"})
"""Folders of the root group that are no groups."""
_CLOSED = f"{RESCTRL} is not writable. Run as root, and mount it writable"
_LAST_LEVEL = "3"
_WHOLE_PCT = 100

Schemata = dict[str, dict[int, str]]
"""By resource (``L3``, ``MB``), the value of each domain, which is a cache by its id."""


class LastLevelCache(msgspec.Struct, frozen=True):
    """One of the node's last-level caches, by its id, a domain of resctrl; and the CPUs behind it."""

    id: int
    cpus: tuple[int, ...]


class Resctrl(msgspec.Struct, frozen=True, kw_only=True):
    """What ``/sys/fs/resctrl`` offers; None where it does not."""

    problem: str | None = None
    """Why it offers nothing, and what to do; None if it is mounted."""
    closed: str | None = None
    """Why this user can make no groups in what is mounted; None if they can."""
    classes: int | None = None
    """How many groups can have parts of their own: one is the root's, for all that is in no other."""
    groups: int = 0
    """How many of them others have taken."""
    cache_parts: int | None = None
    """Into how many parts, bits of a mask, the last-level cache can be divided."""
    cache_mask: int | None = None
    """All of these bits."""
    least_cache_parts: int = 1
    """The fewest that a group can have."""
    hardware_mask: int = 0
    """Those that hardware fills too, such as network cards."""
    least_bandwidth_pct: int | None = None
    """The least part of the memory bandwidth that a group can be held to; None where that is not given in percent."""
    bandwidth_step_pct: int = 1
    caches: tuple[LastLevelCache, ...] = ()
    counted: tuple[str, ...] = ()
    """What is counted of each group, such as ``llc_occupancy`` and ``mbm_total_bytes``."""

    @property
    def text(self) -> str:
        """In words."""
        if self.problem is not None:
            return self.problem
        cache = f"last-level cache in {self.cache_parts} parts for {self.classes} groups" if self.cache_parts else ""
        least = self.least_bandwidth_pct
        bandwidth = f"memory bandwidth from {least}% on" if least is not None else ""
        divides = " and ".join(part for part in (cache, bandwidth) if part) or "nothing"
        return f"divides {divides}; counts {', '.join(self.counted) or 'nothing'}"


def read_resctrl(root: Path = Path("/")) -> Resctrl:
    """Read ``/sys/fs/resctrl``, or why there is none."""
    place = root / RESCTRL.relative_to("/")
    info = place / "info"
    if not info.is_dir():
        return Resctrl(problem=_why_not(kernel_text(root / "proc/filesystems") or ""))
    mask = _number(info / "L3/cbm_mask", 16)
    whole = parse_schemata(kernel_text(place / "schemata") or "")
    classes = [number for path in info.glob("*/num_closids") if (number := _number(path)) is not None]
    in_percent = all(value.isdigit() and int(value) <= _WHOLE_PCT for value in whole.get("MB", {}).values())
    return Resctrl(
        closed=None if os.access(place, os.W_OK) else _CLOSED,
        classes=min(classes, default=None),  # the kernel's own limit is that of the scarcest resource
        groups=sum(path.is_dir() and path.name not in _OWN for path in place.iterdir() if not is_ours(path)),
        cache_parts=mask.bit_count() if mask else None,
        cache_mask=mask,
        least_cache_parts=_number(info / "L3/min_cbm_bits") or 1,
        hardware_mask=_number(info / "L3/shareable_bits", 16) or 0,
        least_bandwidth_pct=_number(info / "MB/min_bandwidth") if in_percent else None,
        bandwidth_step_pct=_number(info / "MB/bandwidth_gran") or 1,
        caches=_caches(root / "sys/devices/system/cpu", whole.get("L3", {})),
        counted=tuple((kernel_text(info / "L3_MON/mon_features") or "").split()),
    )


def is_ours(group: Path) -> bool:
    """Whether ``mnb`` made a group of resctrl."""
    return group.name.startswith(PREFIX)


def parse_schemata(text: str) -> Schemata:
    """The lines of a ``schemata`` file: ``L3:0=7ff;1=7ff``. Raises ValueError for a domain that is no number. Pure."""
    found: Schemata = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, domains = line.partition(":")
        pairs = (domain.partition("=") for domain in domains.split(";"))
        found[name.strip()] = {int(number): value.strip() for number, _, value in pairs}
    return found


def _caches(system: Path, domains: Iterable[int]) -> tuple[LastLevelCache, ...]:
    """The caches of these domains ("Cache IDs" in the kernel's document)."""
    found: dict[int, list[int]] = {domain: [] for domain in domains}
    for index in system.glob("cpu[0-9]*/cache/index*"):
        domain = _number(index / "id") if kernel_text(index / "level") == _LAST_LEVEL else None
        if domain is not None and domain in found:
            found[domain].append(int(index.parts[-3].removeprefix("cpu")))
    return tuple(LastLevelCache(domain, tuple(sorted(cpus))) for domain, cpus in sorted(found.items()))


def _why_not(filesystems: str) -> str:
    if "resctrl" in filesystems.split():
        return f"{RESCTRL} is not mounted (mount -t resctrl resctrl {RESCTRL})"
    return "not offered by this kernel and processor (Intel RDT, AMD QoS; virtual machines hide them)"


def _number(path: Path, base: int = 10) -> int | None:
    text = kernel_text(path)
    return None if text is None else int(text, base)

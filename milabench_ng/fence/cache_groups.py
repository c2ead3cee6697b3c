"""Groups of resctrl, which hold tenants to their parts of last-level caches and memory bandwidth.

Kernel documentation: filesystems/resctrl. A group `mnb-RUN-TENANT` is locked (flock(2)) while its run lives; whoever
makes groups, or looks for those of dead runs, holds a lock on the folder above, as that document asks of all programs.
A run and its guardian remove the run's own groups without that lock. The kernel moves what is left in a removed group
to the root's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from milabench_ng.fence.kernel.processes import proc_threads
from milabench_ng.fence.killing import OwnGroup, noted_groups, sweep
from milabench_ng.fence.runs import RunGroups, lock, locked_top
from milabench_ng.model.errors import IsolationError
from milabench_ng.model.files import is_locked
from milabench_ng.node.kernel_files import kernel_text
from milabench_ng.node.resctrl import PREFIX, RESCTRL, is_ours, parse_schemata
from milabench_ng.records.isolation import CachePart, Effective, Share, Usage

_COUNTERS = {"cache_bytes": "llc_occupancy", "memory_traffic_bytes": "mbm_total_bytes"}
"""Fields of `Usage`, and the kernel's names of them."""


class CacheGroup:
    """One tenant's group."""

    def __init__(self, directory: Path, parts: Iterable[CachePart]) -> None:
        """Make it with these parts; caches that have none keep what the kernel gives a new group.

        Raises IsolationError with the kernel's own reason (``info/last_cmd_status``).
        """
        parts = tuple(parts)
        self.directory = directory
        self._lock = -1
        self._bandwidth = {part.cache for part in parts if part.bandwidth_pct is not None}
        with _explained(directory), locked_top(str(directory.parent)):
            directory.mkdir()
            self.own = OwnGroup.noted(str(directory))
            try:
                self._lock = lock(directory)
                (directory / "schemata").write_text(schemata(parts))
            except OSError:
                self._unlock()
                directory.rmdir()
                raise

    @property
    def tasks(self) -> str:
        """The file that a process enters by writing its pid, or 0 for itself; its children inherit the group."""
        return str(self.directory / "tasks")

    def held(self, limits: Effective, pids: Iterable[int]) -> Effective:
        """The limits, completed with what the kernel holds here, and with whether ``pids`` are all inside."""
        found = parse_schemata((self.directory / "schemata").read_text())
        bandwidth = {cache: int(value) for cache, value in found.get("MB", {}).items() if cache in self._bandwidth}
        parts = (CachePart(cache, int(mask, 16), bandwidth.get(cache)) for cache, mask in found.get("L3", {}).items())
        return msgspec.structs.replace(limits, cache=tuple(parts), in_cache_group=self._holds(tuple(pids)))

    def counted(self, usage: Usage) -> Usage:
        """The usage, completed with what the kernel counts here."""
        found = {}
        for field, name in _COUNTERS.items():
            texts = [kernel_text(path) or "" for path in self.directory.glob(f"mon_data/mon_L3_*/{name}")]
            if texts and all(map(str.isdigit, texts)):  # or "Unavailable", or "Error"
                found[field] = sum(map(int, texts))
        return msgspec.structs.replace(usage, **found)

    def remove(self) -> bool:
        """Remove it; whether it is gone. The kernel refuses nothing here, and what is inside moves to the root's."""
        left = sweep([self.own], patience_s=0.0).left
        self._unlock()
        return not left

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _holds(self, pids: tuple[int, ...]) -> bool:
        """Whether all threads of these processes are inside; one that begins or ends meanwhile does not count."""
        before = _threads(pids)
        inside = set(map(int, (self.directory / "tasks").read_text().split()))
        return not (before - inside) & _threads(pids)


def make_cache_group(run: RunGroups, name: str, share: Share, resctrl: Path = RESCTRL) -> CacheGroup | None:
    """The group of a tenant of ``run``, which the run's guardian minds too; None for a share without cache parts."""
    if share.cache is msgspec.UNSET:
        return None
    group = CacheGroup(resctrl / f"{PREFIX}{run.run_id}-{name}", share.cache)
    run.guardian.mind(group.own)
    return group


def schemata(parts: Iterable[CachePart]) -> str:
    """The lines that give a group these parts: ``L3:0=1f`` and ``MB:0=50``. Pure."""
    parts = tuple(parts)
    masks = [f"{part.cache}={part.mask:x}" for part in parts]
    bandwidths = [f"{part.cache}={part.bandwidth_pct}" for part in parts if part.bandwidth_pct is not None]
    lines = (f"{name}:{';'.join(values)}\n" for name, values in (("L3", masks), ("MB", bandwidths)) if values)
    return "".join(lines)


def find_cache_groups(resctrl: Path = RESCTRL) -> dict[str, bool]:
    """The groups of all runs, and whether their run is alive; none where resctrl is not mounted."""
    if not (resctrl / "info").is_dir():
        return {}
    with locked_top(str(resctrl)):
        return _ours(resctrl)


def reap_cache_groups(resctrl: Path = RESCTRL) -> list[str]:
    """Remove the groups of dead runs, as far as this user may, returning a sentence for each."""
    if not (resctrl / "info").is_dir():
        return []
    with locked_top(str(resctrl)):
        dead = [path for path, alive in _ours(resctrl).items() if not alive]
        sweep(noted_groups(dead), patience_s=1.0)
    return [f"isolation: removed {path}, left by a dead run." for path in dead if not os.path.isdir(path)]


def _threads(pids: Iterable[int]) -> set[int]:
    return {thread for pid in pids for thread in proc_threads(pid)}


def _ours(resctrl: Path) -> dict[str, bool]:
    return {str(path): is_locked(path) for path in sorted(filter(is_ours, resctrl.iterdir()))}


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Turn the kernel's refusal into an error that has its reason."""
    try:
        yield
    except OSError as error:
        said = kernel_text(directory.parent / "info/last_cmd_status") or "nothing more"
        raise IsolationError(
            f"isolation: cannot make the group {directory} with its cache parts: {error.strerror}; the kernel says: "
            f"{said}. mnb doctor shows what this node allows."
        ) from error

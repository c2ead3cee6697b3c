"""What holds a process back in its groups and in all above them, also in hierarchies that the fence does not use.

inotify(7) tells of every write to a file of a group, on cgroup v1 and v2 and through whatever mount. It does not tell
of what changes without a write, or of a process that is moved: those who watch must look from time to time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from milabench_ng.fence.kernel.mounts import find, parse_mountinfo
from milabench_ng.fence.kernel.readings import host_text
from milabench_ng.node.held_file import HeldFile

LIMITS = (
    *("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.high", "cgroup.freeze", "freezer.state", "io.max"),
    *("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"),
    *("blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"),
)
"""Files that hold back all that is in a group or below. Weights do not: a tenant has its CPUs to itself."""
OF_SHARES = (
    *("cpuset.cpus", "cpuset.mems", "pids.max", "memory.max", "memory.swap.max", "memory.oom.group"),
    *("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
)
"""Files that `interface.Group.effective` knows better: in groups above, a change may leave the tenant what it has."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_MODIFY = 0x2
_EVENTS_BYTES = 1 << 16


class Holds:
    """The limits that hold a process in its ``groups`` (by controller), as they are now."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        self._directories = tuple(dict.fromkeys(_above(groups)))
        paths = (directory / name for directory in self._directories for name in LIMITS)
        self._files = {path: HeldFile(path) for path in paths if path.exists()}
        self._before = self._read()

    def follow(self, writes: Writes) -> None:
        """Have ``writes`` hear of these limits, and of those of shares. Raises OSError."""
        shares = (directory / name for directory in self._directories for name in OF_SHARES)
        for path in (*self._files, *shares):
            if path.exists():
                writes.follow(path)

    def changes(self) -> tuple[str, ...]:
        """What has changed since the last call."""
        before, self._before = self._before, self._read()
        return tuple(
            f"{path} was {_shown(before[path])} and became {_shown(now)}"
            for path, now in self._before.items()
            if None not in (before[path], now) and now != before[path]
        )

    def _read(self) -> dict[Path, bytes | None]:
        return {path: _content(file) for path, file in self._files.items()}


class Writes:
    """Hears of writes to files; ``descriptor`` is readable then. Raises OSError where the kernel has no more."""

    def __init__(self) -> None:
        self.descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def follow(self, path: Path) -> None:
        """Hear of this file, too. Raises OSError."""
        if _LIBC.inotify_add_watch(self.descriptor, os.fsencode(path), _IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))

    def clear(self) -> None:
        """Forget what was heard."""
        try:
            os.read(self.descriptor, _EVENTS_BYTES)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Hear no more."""
        os.close(self.descriptor)


def _above(groups: Mapping[str, str]) -> Iterator[Path]:
    """The directories of these groups, and of those above them that are mounted."""
    mounts = parse_mountinfo(host_text("self/mountinfo"))
    for controller, group in groups.items():
        mount = find(mounts, controller)
        directory = mount.directory(group) if mount else None
        while directory is not None and (directory / "cgroup.procs").exists():
            yield directory
            directory = directory.parent


def _content(file: HeldFile) -> bytes | None:
    """None if it cannot be read: its group has vanished."""
    try:
        return file.read()
    except OSError:
        return None


def _shown(content: bytes | None) -> str:
    return ", ".join((content or b"").decode(errors="replace").split("\n")).strip(", ") or "empty"

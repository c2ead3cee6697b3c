"""Enters the fence: what a process does to itself before anything else of the tenant runs.

Uses only the standard library and nothing of this package, because it is also a program: `python -I -S entry.py
ENTRY_JSON -- argv...` enters and becomes argv (cold start; 10 ms). A forked worker calls `enter` (warm start).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_REFUSED = 125
EXIT_NOT_FOUND = 127
_MAX_DESCRIPTORS = 1 << 20
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_SLAVE = 1 << 1, 1 << 2, 1 << 14, 1 << 19


class EntryLike(Protocol):
    """The fields of `fence.interface.FenceEntry`, which cannot be imported here."""

    @property
    def procs(self) -> Sequence[str]: ...
    @property
    def cpus(self) -> Sequence[int]: ...
    @property
    def oom_score_adj(self) -> int | None: ...
    @property
    def shm_bytes(self) -> int | None: ...


class EntryError(Exception):
    """The kernel did not let this process into the fence; it must not continue."""


def refusal(error: EntryError) -> str:
    """What a launch that could not enter writes to its log before it exits with ``EXIT_REFUSED``."""
    return f"mnb: could not enter the fence: {error}"


def enter(entry: EntryLike, parent_pid: int) -> None:
    """Put this process, which must be single-threaded, inside the fence: own session, groups, CPUs, /dev/shm, limits.

    It is killed when the thread of `parent_pid` that started it ends. Raises EntryError.
    """
    join(entry)
    die_with(parent_pid)
    if entry.shm_bytes is not None:
        _own_shm(entry.shm_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _unlimit_memlock()
    if entry.oom_score_adj is not None:
        _write("/proc/self/oom_score_adj", str(entry.oom_score_adj))


def join(entry: EntryLike) -> None:
    """Enter only session, groups and CPUs, for a rank of a multi-device launch, whose parent is inside a fence.

    Raises EntryError.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    for path in entry.procs:
        _write(path, "0")
    if entry.cpus:
        try:
            os.sched_setaffinity(0, entry.cpus)
        except OSError as error:
            raise EntryError(f"cannot run on CPUs {list(entry.cpus)}: {error.strerror}") from error


def _write(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise EntryError(f"cannot write {text!r} to {path}: {error.strerror}") from error


def die_with(parent_pid: int) -> None:
    """Get SIGKILL when the parent ends (prctl(2)), or now if it has ended already."""
    _call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        raise EntryError(f"the process {parent_pid} that started this one is gone")


def _own_shm(size_bytes: int) -> None:
    """Mount a /dev/shm that ends with its last process: otherwise a killed worker's files there stay charged."""
    _call("unshare", _CLONE_NEWNS)
    _call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
    options = b"mode=1777,size=%d" % size_bytes
    _call("mount", b"tmpfs", b"/dev/shm", b"tmpfs", _MS_NOSUID | _MS_NODEV, options)


def _unlimit_memlock() -> None:
    """Lift the memlock limit: pinned buffers are charged to the share, and a second, smaller limit only confuses."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))


def _call(name: str, *arguments: int | bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*(ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments)) != 0:
        raise EntryError(f"{name}: {os.strerror(ctypes.get_errno())}")


def main(arguments: list[str]) -> int:
    """Run as a program; does not return if all goes well."""
    text, dashes, *argv = arguments
    fields = json.loads(text)
    parent_pid = fields.pop("parent_pid")
    os.closerange(fields.pop("descriptors"), _MAX_DESCRIPTORS)
    try:
        if dashes != "--" or not argv:
            raise EntryError("usage: entry.py ENTRY_JSON -- argv...")
        enter(SimpleNamespace(**fields), parent_pid)
    except EntryError as error:
        print(refusal(error), file=sys.stderr)
        return EXIT_REFUSED
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # this interpreter ignores them; argv must not inherit that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"mnb: cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
    return EXIT_NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

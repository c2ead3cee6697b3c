"""Enters the fence: what a process does to itself before anything else of the tenant runs.

Uses only the standard library and nothing of this package, because it is also a program: `python -I -S entry.py
ENTRY_JSON -- argv...` enters and becomes argv (cold start; 10 ms). A forked worker calls `enter` (warm start).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_REFUSED = 125
EXIT_NOT_FOUND = 127
MAX_DESCRIPTORS = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
_CLONE_NEWNS, _CLONE_NEWCGROUP, _CLONE_NEWIPC = 0x00020000, 0x02000000, 0x08000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = (1 << bit for bit in (0, 1, 2, 3, 5, 12))
_MS_REC, _MS_SLAVE = 1 << 14, 1 << 19
# What root keeps (linux/capability.h): reading the data of all users as before (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH,
# FOWNER, FSETID), pinning memory (IPC_LOCK) and making the driver's device files (MKNOD). Without SYS_ADMIN and
# SYS_PTRACE no writable view of the groups can be had, without SYS_NICE and SYS_RESOURCE no real-time class and no
# higher limit.
KEPT_CAPABILITIES = frozenset({0, 1, 2, 3, 4, 14, 27})
_UNLIMITED = (
    *(resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_RSS, resource.RLIMIT_CPU),
    *(resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC),
    resource.RLIMIT_MEMLOCK,  # pinned buffers are charged to the share: a second, smaller limit only confuses
)
FILES = 65536
"""Open files for each process: loaders share tensors by descriptors."""
_CAPABILITY_VERSION_3 = 0x20080522


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
    @property
    def confined(self) -> bool: ...
    @property
    def device_files(self) -> Sequence[str]: ...


class EntryError(Exception):
    """The kernel did not let this process into the fence; it must not continue."""


def refusal(error: EntryError) -> str:
    """What a launch that could not enter says before it exits with ``EXIT_REFUSED``."""
    return f"could not enter its isolation: {error}"


def enter(entry: EntryLike, parent_pid: int) -> None:
    """Put this process, which must be single-threaded, inside the fence: own session, groups, CPUs, /dev/shm, limits.

    What it inherited of niceness, scheduling class and limits is reset; what this user may not reset, /proc shows.

    It is killed when the thread of `parent_pid` that started it ends. Raises EntryError.
    """
    join(entry)
    die_with(parent_pid)
    if entry.shm_bytes is not None:
        _own_shm(entry.shm_bytes)
    _reset()
    if entry.confined:
        with contextlib.suppress(EntryError):  # needs CAP_SYS_ADMIN; /proc/PID/ns shows it
            _call("unshare", _CLONE_NEWIPC)  # System V segments and message queues end with the last process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
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


def confine(entry: EntryLike) -> None:
    """Take from this process, which must be single-threaded, the means to leave the fence that it has entered.

    Its own cgroup namespace, all groups read-only, no device files of other tenants' GPUs, few capabilities, and none
    to be gained by an exec. What this user or kernel does not allow is left out; ``ProcView.confinement`` is what
    /proc shows of it. The ranks of a launch share /dev/shm and the IPC namespace, which `enter` made: this is the last
    step of each rank, and not of their agent, which looks for the deaths of its children.
    """
    if not entry.confined:
        return
    adopt_orphans()
    with contextlib.suppress(EntryError):
        _call("unshare", _CLONE_NEWNS | _CLONE_NEWCGROUP)
        _call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
        flags = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        for point in _group_mounts():
            _call("mount", b"none", point, None, flags, None)
        if entry.device_files:
            _keep_only(entry.device_files)
    with contextlib.suppress(EntryError):
        _drop_capabilities()
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _keep_only(files: Sequence[str]) -> None:
    """Leave of the folder of these device files only them, in the mount namespace of this process.

    They have to be missing: ROCm's libraries skip a GPU whose file does not exist, and give up if they may not open it
    (libhsakmt, topology.c).
    """
    folder = os.fsencode(os.path.dirname(files[0]))
    try:
        opened = [(os.fsencode(path), os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in files]
    except OSError as error:
        raise EntryError(f"cannot find {error.filename}: {error.strerror}") from error
    _call("mount", b"tmpfs", folder, b"tmpfs", _MS_NOSUID | _MS_NOEXEC, b"mode=755,size=64k")
    try:
        for path, descriptor in opened:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
            _call("mount", b"/proc/self/fd/%d" % descriptor, path, None, _MS_BIND, None)
            os.close(descriptor)
    except EntryError:
        _call("umount", folder)
        raise


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends (prctl(2)): a daemon does not get out of sight."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _group_mounts() -> list[bytes]:
    """Where cgroups and resctrl are mounted (proc(5), mountinfo)."""
    with open("/proc/self/mountinfo", "rb") as file:
        halves = [line.split(b" - ", 1) for line in file]
    points = [mount.split()[4] for mount, kind in halves if kind.startswith((b"cgroup ", b"cgroup2 ", b"resctrl "))]
    return [point.replace(b"\\040", b" ") for point in points]


def _drop_capabilities() -> None:
    with open("/proc/self/status") as file:
        held = next(int(line.split()[1], 16) for line in file if line.startswith("CapPrm"))
    kept = held & sum(1 << number for number in KEPT_CAPABILITIES)
    with open("/proc/sys/kernel/cap_last_cap") as file:
        numbers = range(int(file.read()) + 1)
    for number in numbers if held else ():
        if number not in KEPT_CAPABILITIES:
            _call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    sets = struct.pack("=6I", low, low, 0, high, high, 0)  # effective, permitted, inheritable; twice 32 of them
    _call("capset", struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), sets)


def _write(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise EntryError(f"cannot write {text!r} to {path}: {error.strerror}") from error


def die_with(parent_pid: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Get the signal ``by`` when the parent ends (prctl(2)); raise EntryError if it has ended already."""
    _call("prctl", _PR_SET_PDEATHSIG, int(by), 0, 0, 0)
    if os.getppid() != parent_pid:
        raise EntryError(f"the process {parent_pid} that started this one is gone")


def _own_shm(size_bytes: int) -> None:
    """Mount a /dev/shm that ends with its last process: otherwise a killed worker's files there stay charged."""
    _call("unshare", _CLONE_NEWNS)
    _call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
    options = b"mode=1777,size=%d" % size_bytes
    _call("mount", b"tmpfs", b"/dev/shm", b"tmpfs", _MS_NOSUID | _MS_NODEV, options)


def _reset() -> None:
    """Undo what a shell or a service manager may have set: it would make this node another than the next."""
    schedule_as_usual()
    for limit in _UNLIMITED:
        raise_limit(limit, resource.RLIM_INFINITY)
    raise_limit(resource.RLIMIT_NOFILE, FILES)


def schedule_as_usual() -> None:
    """Leave a scheduling class or niceness that was inherited, as far as this process may."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def raise_limit(limit: int, wanted: int) -> None:
    """Raise a limit that is lower, or at least its soft part to its hard one."""
    soft, hard = resource.getrlimit(limit)
    if soft == resource.RLIM_INFINITY or soft >= wanted > resource.RLIM_INFINITY:
        return
    enough = hard == resource.RLIM_INFINITY or hard >= wanted > resource.RLIM_INFINITY
    try:
        resource.setrlimit(limit, (wanted, hard if enough else wanted))
    except (ValueError, OSError):
        resource.setrlimit(limit, (hard, hard))


def _call(name: str, *arguments: int | bytes | None) -> None:
    if getattr(_LIBC, name)(*(ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments)) != 0:
        raise EntryError(f"{name}: {os.strerror(ctypes.get_errno())}")


def main(arguments: list[str]) -> int:
    """Run as a program; does not return if all goes well."""
    text, dashes, *argv = arguments
    fields = json.loads(text)
    parent_pid = fields.pop("parent_pid")
    os.closerange(fields.pop("descriptors"), MAX_DESCRIPTORS)
    last = fields.pop("last")
    try:
        if dashes != "--" or not argv:
            raise EntryError("usage: entry.py ENTRY_JSON -- argv...")
        entry = SimpleNamespace(**fields)
        enter(entry, parent_pid)
        if last:
            confine(entry)
    except EntryError as error:
        print(f"mnb: {refusal(error)}", file=sys.stderr)
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

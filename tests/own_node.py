"""A node of its own for each process of tests: groups, network and mounts that no other `mnb` sees, and it sees none.

Claims of CPUs reach as far as the network namespace, and runs look for each other in the groups below the root that
they see. So two processes of pytest can work side by side, and beside an `mnb` that measures on the machine.

It needs root and cgroup v1: below a group of cgroup v2 that holds processes, the kernel lets no group limit anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWNET = 0x0002_0000, 0x0200_0000, 0x4000_0000
MS_REC, MS_PRIVATE, MNT_DETACH = 0x4000, 0x4_0000, 2
SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8914, 0x8916, 1
ADDRESS = "192.0.2.1"
"""Of no machine (RFC 5737). Where all addresses are 127.0.0.1, getaddrinfo(3) may find none (AI_ADDRCONFIG)."""
PREFIX = "mnb-tests-"
FENCED = frozenset({"cpu", "cpuset", "io", "memory", "pids"})


class Hierarchy(NamedTuple):
    """A mounted hierarchy of groups."""

    place: Path
    kind: str
    options: str
    """Of its superblock: which controllers it has."""

    def fences_in_v2(self) -> bool:
        """Whether groups of cgroup v2 hold what a fence limits."""
        return self.kind == "cgroup2" and bool(FENCED & set((self.place / "cgroup.controllers").read_text().split()))


def hierarchies() -> list[Hierarchy]:
    """All that are mounted, from proc(5)'s mountinfo."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        kind, _, options = after.split()
        if kind in ("cgroup", "cgroup2"):
            wanted = ",".join(option for option in options.split(",") if option not in ("rw", "ro"))
            found.append(Hierarchy(Path(before.split()[4]), kind, wanted))
    return found


def possible() -> bool:
    """Whether this process may have a node of its own."""
    found = hierarchies()
    writable = all(os.access(one.place, os.W_OK) for one in found)
    return os.geteuid() == 0 and bool(found) and writable and not any(one.fences_in_v2() for one in found)


class OwnNode:
    """Groups, a network and mounts of this process's own, from now on until it is closed."""

    def __init__(self) -> None:
        found = hierarchies()
        self._name = f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}"  # the pid may be one of another pid namespace
        self._back = [os.open(one.place / "cgroup.procs", os.O_WRONLY) for one in found]
        self._roots = [os.open(one.place, os.O_RDONLY) for one in found]
        for one in found:
            sweep(one.place)
            group = one.place / self._name
            group.mkdir()
            for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, which takes no process then
                with contextlib.suppress(FileNotFoundError):
                    (group / file).write_text((one.place / file).read_text())
            (group / "cgroup.procs").write_text(str(os.getpid()))
        _check("unshare", CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWNET)
        _check("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
        for one in found:
            _check("umount2", bytes(one.place), MNT_DETACH)
            _check("mount", b"none", bytes(one.place), one.kind.encode(), 0, one.options.encode())
        _check("mount", b"none", b"/dev/shm", b"tmpfs", 0, None)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
            address = struct.pack("H2x4s8x", socket.AF_INET, socket.inet_aton(ADDRESS))
            fcntl.ioctl(any_socket, SIOCSIFADDR, struct.pack("16s16s", b"lo:0", address))

    def close(self) -> None:
        """Go back to where the process was in all hierarchies, and remove its groups."""
        for back, root in zip(self._back, self._roots, strict=True):
            os.write(back, str(os.getpid()).encode())
            with contextlib.suppress(OSError):  # a process that a test left is in it: the next tests remove it
                os.rmdir(self._name, dir_fd=root)
            os.close(back)
            os.close(root)


def sweep(place: Path) -> None:
    """Remove the empty groups of tests that were killed."""
    for group in place.glob(f"{PREFIX}*"):
        if not Path("/proc", group.name.removeprefix(PREFIX).partition("-")[0]).exists():
            with contextlib.suppress(OSError):
                group.rmdir()


def _check(name: str, *arguments: object) -> None:
    """Call a function of the C library. Raises OSError if it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")

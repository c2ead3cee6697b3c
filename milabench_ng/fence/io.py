"""I/O bandwidth shares: the disk that is limited, what limits it here, and a short read that shows that it does.

The kernel limits disks (Documentation/admin-guide/cgroup-v2.rst, `io.max`; cgroup-v1/blkio-controller.rst,
`blkio.throttle`), so a data root that lies on none (NFS, overlay, tmpfs, btrfs) cannot be limited. Hits in the page
cache are never limited, buffered writes on v1 only when they reach the disk.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import Group
from milabench_ng.profile import IoShare
from milabench_ng.records.isolation import IoEvidence, IoLimit, IoMethod
from milabench_ng.units import KIB, MIB, format_bytes, parse_bytes_per_second

LEAST_BYTES_PER_S = MIB
TOLERANCE = 0.1
"""A probe that read more than its share by more than this part shows that the share is not held."""
_FILE_BYTES = 32 * MIB
_PATIENCE_S = 4
_PROGRAM = """
import mmap, os, sys, time
wanted, chunk, size, patience_s = map(int, sys.argv[1:])
buffer = mmap.mmap(-1, chunk)
begun = time.monotonic()
while time.monotonic() - begun < 0.3:
    os.preadv(0, [buffer], 0)
done, began = 0, time.monotonic()
while done < wanted and time.monotonic() - began < patience_s:
    done += os.preadv(0, [buffer], done % size)
print(done, time.monotonic() - began)
"""


class Disk(msgspec.Struct, frozen=True):
    """A whole disk: its number (`major:minor`), as limits want it, and its name."""

    number: str
    name: str


def whole_disk(path: Path, sysfs: Path = Path("/sys")) -> Disk | None:
    """The disk that `path`, or the nearest folder above it that exists, lies on; None for a file system without one."""
    number = nearest(path).stat().st_dev
    block = sysfs / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    if os.major(number) == 0 or not block.exists():
        return None
    block = block.resolve()
    if (block / "partition").exists():
        block = block.parent
    return Disk((block / "dev").read_text().strip(), block.name)


def nearest(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


def method(capabilities: Capabilities, backend: str) -> IoMethod | None:
    """What limits I/O behind the fence of this back end; None for nothing, `none` where no fence was asked for."""
    if backend in ("none", "affinity"):
        return "none" if backend == "none" else None
    if capabilities.ok("io"):
        return "io.max"
    return "blkio.throttle" if capabilities.ok("blkio") else None


def ask(wanted: IoShare, where: str, dataroot: Path, capabilities: Capabilities, backend: str) -> IoEvidence:
    """The share that was asked for, on this node. `where` names test and profile in errors.

    Raises InputError if it cannot be enforced: a share that is not held must not look like one.
    """
    rates = {name: _rate(getattr(wanted, name), f"{where}: io.{name}") for name in ("read", "write")}
    disk, how = whole_disk(dataroot), method(capabilities, backend)
    if how is None or (disk is None and how != "none"):
        asked = ", ".join(f"{name} {format_bytes(rate)}/s" for name, rate in rates.items() if rate)
        reason = _no_controller(capabilities, backend) if how is None else _no_disk(dataroot, how)
        raise InputError(f"{where}: an I/O share was asked for ({asked}), {reason}, or leave the I/O share away.")
    return IoEvidence(
        method=how,
        device=disk.number if disk else "",
        disk=disk.name if disk else "",
        read_bytes_per_s=rates["read"],
        write_bytes_per_s=rates["write"],
    )


def limits(asked: IoEvidence | None) -> tuple[IoLimit, ...]:
    """What the tenant's group is to be given."""
    if asked is None or asked.method == "none":
        return ()
    return (IoLimit(asked.device, asked.read_bytes_per_s, asked.write_bytes_per_s),)


@contextlib.contextmanager
def probe_file(folder: Path) -> Iterator[int]:
    """A descriptor of a file without a name on the disk of `folder`, for direct I/O (open(2), O_TMPFILE).

    Raises OSError where that cannot be made.
    """
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    try:
        with mmap.mmap(-1, 4 * MIB) as data:  # direct I/O wants memory that begins at a page
            data.write(os.urandom(len(data)))
            for offset in range(0, _FILE_BYTES, len(data)):
                os.pwritev(descriptor, [data], offset)
        yield descriptor
    finally:
        os.close(descriptor)


def start_probe(group: Group, bytes_per_s: int, descriptor: int) -> subprocess.Popen[str]:
    """Begin to read what the share allows in a second, directly from the disk, inside `group`.

    What is read in the first 0.3 s is not counted: the kernel lets a burst of about a tenth of a second pass.
    """
    chunk = min(max(1 << (bytes_per_s // 32).bit_length() - 1, 32 * KIB), 4 * MIB)
    numbers = map(str, (bytes_per_s, chunk, _FILE_BYTES, _PATIENCE_S))
    argv = group.entry.command([sys.executable, "-I", "-S", "-c", _PROGRAM, *numbers])
    return subprocess.Popen(argv, stdin=descriptor, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_probe(process: subprocess.Popen[str], asked: IoEvidence) -> IoEvidence:
    """Wait for a probe; what it read per second, or why it did not."""
    said, complaint = process.communicate()
    if process.returncode != 0:
        reason = complaint.strip().rpartition("\n")[2] or f"the probe ended with status {process.returncode}"
        return msgspec.structs.replace(asked, problem=reason)
    size, seconds = said.split()
    return msgspec.structs.replace(asked, probed_bytes=int(size), probed_read_bytes_per_s=int(size) / float(seconds))


def excess(seen: IoEvidence) -> str | None:
    """The finding that the share does not hold: the probe read faster than it may."""
    if seen.read_bytes_per_s is None or seen.probed_read_bytes_per_s is None:
        return None
    if seen.probed_read_bytes_per_s <= seen.read_bytes_per_s * (1 + TOLERANCE):
        return None
    return (
        f"isolation: asked for at most {format_bytes(seen.read_bytes_per_s)}/s of reads from {seen.disk} "
        f"({seen.method}), a probe in the tenant's group read {format_bytes(seen.probed_read_bytes_per_s)}/s"
    )


def _rate(text: str | None, what: str) -> int | None:
    if text is None:
        return None
    rate = parse_bytes_per_second(text, what)
    if rate < LEAST_BYTES_PER_S:
        raise InputError(f"{what}: {text!r} is too little to work with; at least 1 MiB/s")
    return rate


def _no_disk(dataroot: Path, how: IoMethod) -> str:
    return (
        f"and {how} limits disks only: the data root {dataroot} lies on none (a network or memory file system, an "
        "overlay, or btrfs). Put it on a local disk with -d"
    )


def _no_controller(capabilities: Capabilities, backend: str) -> str:
    if backend == "affinity":
        return "and the fence 'affinity' limits no I/O. Run as root or in a delegated cgroup (mnb doctor)"
    known = [capabilities.controllers[name] for name in ("io", "blkio") if name in capabilities.controllers]
    why = "; ".join(controller.why for controller in known if controller.why) or "the kernel shows no such controller"
    return f"and mnb may use neither io.max (cgroup v2) nor blkio.throttle (v1) here: {why}. See mnb doctor"

"""I/O bandwidth shares: the limited disk, what limits it here, and a short probe to show that it does.

The kernel limits disks (Documentation/admin-guide/cgroup-v2.rst, `io.max`; cgroup-v1/blkio-controller.rst,
`blkio.throttle`); if the data root is not on one (NFS, overlay, tmpfs, btrfs), the dataset's readers limit themselves
(`datasets.budget`). The kernel never limits page cache hits, and limits buffered writes on v1 only when they reach the
disk.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.interface import Group
from milabench_ng.fence.killing import signal_child
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import nearest
from milabench_ng.model.profile import IoShare
from milabench_ng.model.units import KIB, MIB, format_bytes, format_limit, parse_bytes_per_second
from milabench_ng.records.isolation import IoEvidence, IoLimit, IoMethod

LEAST_BYTES_PER_S = MIB
TOLERANCE = 0.1
"""A probe that exceeds its share by more than this fraction shows that the share is not enforced."""
Transfer = Literal["read", "write"]
_CALLS: dict[Transfer, str] = {"read": "preadv", "write": "pwritev"}
_CONTROLLERS: dict[IoMethod, str] = {"io.max": "io", "blkio.throttle": "blkio"}
"""What a method needs of the kernel."""
_FILE_BYTES = 32 * MIB
_PATIENCE_S = 4
_PROGRAM = """
import mmap, os, sys, time
transfer = getattr(os, sys.argv[1])
wanted, chunk, size, patience_s = map(int, sys.argv[2:])
buffer = mmap.mmap(-1, chunk)
begun = time.monotonic()
while time.monotonic() - begun < 0.3:
    transfer(0, [buffer], 0)
done, began = 0, time.monotonic()
while done < wanted and time.monotonic() - began < patience_s:
    done += transfer(0, [buffer], done % size)
print(done, time.monotonic() - began)
"""


class Limiter(Protocol):
    """What counts of a back end here (`fence.choosing.Backend`)."""

    NAME: str
    IO_METHOD: IoMethod | None


class Disk(msgspec.Struct, frozen=True):
    """A whole disk: its number (`major:minor`), as limits need it, and its name."""

    number: str
    name: str


def whole_disk(path: Path, sysfs: Path = Path("/sys")) -> Disk | None:
    """The disk that holds `path` or its nearest existing parent; None for a file system without one."""
    number = nearest(path).stat().st_dev
    block = sysfs / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    if os.major(number) == 0 or not block.exists():
        return None
    block = block.resolve()
    if (block / "partition").exists():
        block = block.parent
    return Disk((block / "dev").read_text().strip(), block.name)


def method(capabilities: Capabilities, backend: Limiter) -> IoMethod | None:
    """What limits I/O behind this back end's fence; None for nothing, `none` if no fence was requested."""
    found = backend.IO_METHOD
    return found if found not in _CONTROLLERS or capabilities.ok(_CONTROLLERS[found]) else None


def ask(wanted: IoShare, where: str, dataroot: Path, capabilities: Capabilities, backend: Limiter) -> IoEvidence:
    """The requested share, on this node. `where` names test and profile in errors.

    What the kernel cannot limit, the dataset's readers do. Raises InputError for writes that nothing could limit.
    """
    rates = {name: rate_of(getattr(wanted, name), f"{where}: io.{name}") for name in ("read", "write")}
    disk, how = whole_disk(dataroot), method(capabilities, backend)
    reason = None
    if how is None or (disk is None and how != "none"):
        reason = _no_controller(capabilities, backend) if how is None else _no_disk(dataroot, how)
        disk, how = None, "readers"
        if rates["write"]:
            raise InputError(
                f"{where}: an I/O limit of {format_limit(rates['write'])} for writes was requested, but only "
                f"the kernel can enforce it: {reason}. Or leave out the limit for writes."
            )
    return IoEvidence(
        method=how,
        device=disk.number if disk else "",
        disk=disk.name if disk else "",
        read_bytes_per_s=rates["read"],
        write_bytes_per_s=rates["write"],
        reason=reason,
    )


def limits(asked: IoEvidence | None) -> tuple[IoLimit, ...]:
    """The limits for the tenant's group."""
    if asked is None or asked.method in ("none", "readers"):
        return ()
    return (IoLimit(asked.device, asked.read_bytes_per_s, asked.write_bytes_per_s),)


def reader_budget(asked: IoEvidence | None) -> int | None:
    """Bytes per second for the dataset's readers, if they are what limits."""
    return asked.read_bytes_per_s if asked and asked.method == "readers" else None


@contextlib.contextmanager
def probe_file(folder: Path) -> Iterator[int]:
    """A descriptor of an unnamed file on the disk of `folder`, for direct I/O (open(2), O_TMPFILE).

    Raises OSError if it cannot be made.
    """
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    try:
        with mmap.mmap(-1, 4 * MIB) as data:  # direct I/O needs page-aligned memory
            data.write(os.urandom(len(data)))
            for offset in range(0, _FILE_BYTES, len(data)):
                os.pwritev(descriptor, [data], offset)
        yield descriptor
    finally:
        os.close(descriptor)


def start_probe(group: Group, what: Transfer, bytes_per_s: int, descriptor: int) -> subprocess.Popen[str]:
    """Start to read or write what the share allows in a second, directly on the disk, inside `group`.

    The first 0.3 s do not count: the kernel lets a burst of about a tenth of a second through.
    """
    chunk = min(max(1 << (bytes_per_s // 32).bit_length() - 1, 32 * KIB), 4 * MIB)
    numbers = map(str, (bytes_per_s, chunk, _FILE_BYTES, _PATIENCE_S))
    argv = group.entry.command([sys.executable, "-I", "-S", "-c", _PROGRAM, _CALLS[what], *numbers])
    return subprocess.Popen(argv, stdin=descriptor, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_probe(process: subprocess.Popen[str], what: Transfer, asked: IoEvidence) -> IoEvidence:
    """Wait for a probe; return what it transferred per second, or why it did not."""
    try:
        said, complaint = process.communicate(timeout=2 * _PATIENCE_S)
    except subprocess.TimeoutExpired:
        signal_child(process, signal.SIGKILL)
        return msgspec.structs.replace(asked, problem=f"the probe did not end within {2 * _PATIENCE_S:g} s")
    if process.returncode != 0:
        reason = complaint.strip().rpartition("\n")[2] or f"the probe ended with status {process.returncode}"
        return msgspec.structs.replace(asked, problem=reason)
    size, seconds = said.split()
    rate = int(size) / float(seconds)
    if what == "write":
        return msgspec.structs.replace(asked, probed_write_bytes_per_s=rate)
    return msgspec.structs.replace(asked, probed_bytes=int(size), probed_read_bytes_per_s=rate)


def excess(seen: IoEvidence) -> str | None:
    """The finding that the share does not hold: the probe or the readers were faster than allowed."""
    who = "the readers of the dataset" if seen.method == "readers" else "a probe in the tenant's group"
    found = (
        ("read", seen.read_bytes_per_s, seen.reader_bytes_per_s or seen.probed_read_bytes_per_s),
        ("write", seen.write_bytes_per_s, seen.probed_write_bytes_per_s),
    )
    for what, limit, rate in found:
        if limit is not None and rate is not None and rate > limit * (1 + TOLERANCE):
            return (
                f"isolation: requested at most {format_limit(limit)} of {what}s on {seen.disk or 'the data root'} "
                f"({seen.method}), but {who} had {format_bytes(rate)}/s"
            )
    return None


def achieved(asked: IoEvidence, read_bytes: int | None, read_s: float | None) -> IoEvidence:
    """The evidence, completed with what the dataset's readers report about a launch."""
    if asked.method != "readers" or read_bytes is None or not read_s:
        return asked
    return msgspec.structs.replace(asked, reader_bytes=read_bytes, reader_bytes_per_s=read_bytes / read_s)


def rate_of(text: str | None, what: str) -> int | None:
    """Bytes per second of a limit that ``what`` names; None for none."""
    if text is None:
        return None
    rate = parse_bytes_per_second(text, what)
    if rate < LEAST_BYTES_PER_S:
        raise InputError(f"{what}: expected at least 1 MiB/s, got {text!r}")
    return rate


def _no_disk(dataroot: Path, how: IoMethod) -> str:
    return (
        f"{how} limits disks only, and the data root {dataroot} lies on none (a network or memory file system, an "
        "overlay, or btrfs). Put it on a local disk with -d"
    )


def _no_controller(capabilities: Capabilities, backend: Limiter) -> str:
    if backend.IO_METHOD is None:
        return f"isolation {backend.NAME!r} limits no I/O. Run as root or in a delegated cgroup (mnb doctor)"
    known = [capabilities.controllers[name] for name in ("io", "blkio") if name in capabilities.controllers]
    why = "; ".join(controller.why for controller in known if controller.why) or "the kernel has no such controller"
    return f"mnb may use neither io.max (cgroup v2) nor blkio.throttle (v1) here: {why}. See mnb doctor"

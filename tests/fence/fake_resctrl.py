"""A file system that behaves as resctrl (filesystems/resctrl): two caches of 11 parts, 4 groups, nothing behind it.

As a program: mounts itself on a folder and serves until it is unmounted. It speaks the kernel's FUSE protocol
(linux/fuse.h), so that whatever enters, reads and removes its groups are real system calls of real processes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

GROUPS = 4
_MASK = 0x7FF
_INFO = {
    "last_cmd_status": "ok",
    "L3/cbm_mask": "7ff",
    "L3/min_cbm_bits": "1",
    "L3/shareable_bits": "0",
    "L3/num_closids": str(GROUPS),
    "MB/min_bandwidth": "10",
    "MB/bandwidth_gran": "10",
    "MB/num_closids": str(GROUPS),
    "L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes",
}
_IN = struct.Struct("<IIQQIIII")
_LIBC = ctypes.CDLL(None, use_errno=True)


class RefusedError(Exception):
    """A system call fails, with this number and the reason that is left in ``info/last_cmd_status``."""

    def __init__(self, number: int, reason: str = "") -> None:
        self.number, self.reason = number, reason


class Group:
    """A group of tasks with its part of each cache."""

    def __init__(self) -> None:
        self.values = {"MB": {0: 100, 1: 100}, "L3": {0: _MASK, 1: _MASK}}
        self.entered: set[int] = set()

    def schemata(self) -> str:
        """As the kernel shows it."""
        bandwidths = ";".join(f"{domain}={value:3}" for domain, value in self.values["MB"].items())
        masks = ";".join(f"{domain}={value:03x}" for domain, value in self.values["L3"].items())
        return f"    MB:{bandwidths}\n    L3:{masks}"

    def change(self, text: str) -> None:
        """Write lines of ``schemata``: only the domains that they name change."""
        for line in text.splitlines():
            name, domains = line.strip().split(":")
            for domain in domains.split(";"):
                number, value = domain.split("=")
                found = int(value, 10 if name == "MB" else 16)
                if name == "L3" and not re.fullmatch("0*1+0*", f"{found:b}"):
                    raise RefusedError(errno.EINVAL, f"The mask {found:x} has non-consecutive 1-bits")
                self.values[name][int(number)] = found


class Resctrl:
    """The whole tree; the group named ``""`` is the root's."""

    def __init__(self) -> None:
        self.groups = {"": Group()}
        self.status = _INFO["last_cmd_status"]

    def text(self, path: str) -> str:
        """The content of a file. Raises KeyError if there is none."""
        if path == "info/last_cmd_status":
            return self.status
        if path.startswith("info/"):
            return _INFO[path.removeprefix("info/")]
        group, _, name = path.rpartition("/")
        if found := re.fullmatch(r"(?:(.*)/)?mon_data/mon_L3_0([01])", group):
            self.groups[found[1] or ""]
            return {"llc_occupancy": "1000", "mbm_total_bytes": "70"}[name]
        return {"schemata": self.groups[group].schemata, "tasks": lambda: self.tasks(group)}[name]()

    def names(self, path: str) -> list[str]:
        """What is in a folder. Raises KeyError if there is none."""
        if path == "info" or path.startswith("info/"):
            below = [f"info/{name}" for name in _INFO]
            found = {name.removeprefix(f"{path}/").split("/")[0] for name in below if name.startswith(f"{path}/")}
            if not found:
                raise KeyError(path)
            return sorted(found)
        group, _, name = path.rpartition("/")
        if path in self.groups:
            return ["schemata", "tasks", "mon_data", *((*filter(None, self.groups), "info") if not path else ())]
        if name == "mon_data" and group in self.groups:
            return ["mon_L3_00", "mon_L3_01"]
        if name in ("mon_L3_00", "mon_L3_01") and group.rpartition("/")[2] == "mon_data":
            return ["llc_occupancy", "mbm_total_bytes"]
        raise KeyError(path)

    def tasks(self, group: str) -> str:
        """The threads that entered a group, and those of all processes that began below them."""
        parents = dict(_parents())
        owner = {pid: name for name, one in self.groups.items() for pid in one.entered}

        def of(pid: int) -> str:
            while pid not in owner and pid in parents:
                pid = parents[pid]
            return owner.get(pid, "")

        return "\n".join(thread for pid in parents if of(pid) == group for thread in _threads(pid))

    def write(self, path: str, text: str, pid: int) -> None:
        group, _, name = path.rpartition("/")
        if name == "schemata":
            self.groups[group].change(text)
        elif name == "tasks":
            task = int(text) or pid
            for one in self.groups.values():
                one.entered.discard(task)
            self.groups[group].entered.add(task)
        else:
            raise RefusedError(errno.EACCES)

    def mkdir(self, path: str) -> None:
        if "/" in path:
            raise RefusedError(errno.EPERM)
        if len(self.groups) == GROUPS:
            raise RefusedError(errno.ENOSPC, "Out of CLOSIDs")
        self.groups[path] = Group()

    def rmdir(self, path: str) -> None:
        if path not in self.groups or not path:
            raise RefusedError(errno.EPERM)
        del self.groups[path]


def _parents() -> Iterator[tuple[int, int]]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield int(name), int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


class Server:
    """Answers the kernel's requests about a `Resctrl`."""

    def __init__(self, tree: Resctrl) -> None:
        self.tree = tree
        self.paths = {1: ""}
        self.answers: dict[int, Callable[[str, bytes, int], bytes]] = {
            1: lambda path, body, _: self.entry(_join(path, _name(body))),
            3: lambda path, *_: struct.pack("<QII", 0, 0, 0) + self.attributes(path),
            4: lambda path, *_: struct.pack("<QII", 0, 0, 0) + self.attributes(path),
            9: lambda path, body, _: self.made(_join(path, _name(body[8:]))),
            11: lambda path, body, _: tree.rmdir(_join(path, _name(body))) or b"",
            14: lambda *_: struct.pack("<QII", 0, 1, 0),  # direct: what is read is asked for each time
            15: lambda path, body, _: self.part(f"{tree.text(path)}\n".encode(), body),
            16: self.written,
            27: lambda *_: struct.pack("<QII", 0, 0, 0),
            28: lambda path, body, _: self.part(self.listed(path), body),
            **dict.fromkeys((18, 20, 25, 29), lambda *_: b""),
        }

    def answer(self, request: bytes) -> bytes:
        """The answer to a request; empty where none is expected."""
        _, code, unique, node, _, _, pid, _ = _IN.unpack_from(request)
        body = request[_IN.size :]
        if code in (2, 36, 42):
            return b""
        if code == 26:
            return _out(unique, struct.pack("<IIIIHHIIHH32x", 7, 31, 0, 0, 8, 8, 1 << 16, 1, 0, 0))
        if code not in self.answers:
            return _out(unique, b"", errno.ENOSYS)
        try:
            return _out(unique, self.answers[code](self.paths[node], body, pid))
        except KeyError:
            return _out(unique, b"", errno.ENOENT)
        except RefusedError as refused:
            self.tree.status = refused.reason or "ok"
            return _out(unique, b"", refused.number)

    def entry(self, path: str) -> bytes:
        attributes = self.attributes(path)
        node = next((node for node, known in self.paths.items() if known == path), len(self.paths) + 1)
        self.paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + attributes

    def attributes(self, path: str) -> bytes:
        try:
            self.tree.names(path)
            mode = stat.S_IFDIR | 0o755
        except KeyError:
            self.tree.text(path)
            mode = stat.S_IFREG | 0o644
        return struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def made(self, path: str) -> bytes:
        self.tree.mkdir(path)
        return self.entry(path)

    def written(self, path: str, body: bytes, pid: int) -> bytes:
        self.tree.write(path, body[40:].decode(), pid)
        return struct.pack("<II", len(body) - 40, 0)

    def listed(self, path: str) -> bytes:
        found = b""
        for name in self.tree.names(path):
            entry = struct.pack("<QQII", 1, 0, len(name), 0) + name.encode()
            entry += bytes(-len(entry) % 8)
            found += entry[:8] + struct.pack("<Q", len(found) + len(entry)) + entry[16:]
        return found

    @staticmethod
    def part(content: bytes, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return content[offset : offset + size]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _name(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode()


def _out(unique: int, body: bytes, error: int = 0) -> bytes:
    return struct.pack("<IiQ", 16 + len(body), -error, unique) + body


def serve(point: str) -> None:
    """Mount on a folder, and answer until it is unmounted."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if _LIBC.mount(b"resctrl", point.encode(), b"fuse", 6, options):
        sys.exit(os.strerror(ctypes.get_errno()))
    server = Server(Resctrl())
    while True:
        try:
            answer = server.answer(os.read(device, 1 << 18))
        except OSError:  # unmounted
            return
        if answer:
            try:
                os.write(device, answer)
            except OSError:  # whoever asked was killed meanwhile
                continue


@contextmanager
def mounted(point: Path) -> Iterator[Path]:
    """The tree on a folder, served by a process of its own. Raises OSError where none can be mounted."""
    with subprocess.Popen([sys.executable, __file__, str(point)], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        while not point.is_mount():
            if server.poll() is not None:
                raise OSError(server.stderr.read())
            time.sleep(0.01)
        try:
            yield point
        finally:
            _LIBC.umount2(str(point).encode(), 2)  # detached: a lock may still be held in it
            server.kill()


if __name__ == "__main__":
    serve(sys.argv[1])

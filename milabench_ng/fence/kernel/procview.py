"""A process as /proc shows it: besides the group's own files, the second witness of where it is (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from milabench_ng.fence.kernel.limits import read_scheduling
from milabench_ng.fence.kernel.mounts import parse_mountinfo
from milabench_ng.fence.kernel.processes import working_name
from milabench_ng.node.cgroup_files import parse_ids
from milabench_ng.records.isolation import Confinement, ProcView

CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)
"""By number (linux/capability.h)."""


def read_process(pid: int) -> ProcView:
    """What /proc/PID shows now. Raises ProcessLookupError if there is no such process, or if it is ending.

    A process that ends gives up its memory before the kernel moves it to the root of every hierarchy. Raises another
    OSError if it is there and cannot be read.
    """
    try:
        return _view(pid, Path(f"/proc/{pid}"))
    except ProcessLookupError as error:
        raise ProcessLookupError(f"there is no process {pid} any more") from error
    except OSError as error:  # EINVAL: its mount namespace is gone before it is
        if not working_name(str(pid)):
            raise ProcessLookupError(f"process {pid} is ending") from error
        raise


def _view(pid: int, directory: Path) -> ProcView:
    groups = tuple((directory / "cgroup").read_text().splitlines())
    lines = (line.split(":", 1) for line in (directory / "status").read_text().splitlines())
    status = {name: value.strip() for name, value in lines}
    if "VmSize" not in status:
        raise ProcessLookupError(f"process {pid} is ending")
    return ProcView(
        pid=pid,
        groups=groups,
        cpus_allowed=parse_ids(status["Cpus_allowed_list"]),
        mems_allowed=parse_ids(status["Mems_allowed_list"]),
        threads=int(status["Threads"]),
        open_fds=_open_fds(directory / "fd"),
        confinement=_confinement(directory, status),
        scheduling=read_scheduling(pid),
    )


def _confinement(directory: Path, status: Mapping[str, str]) -> Confinement:
    mounts = parse_mountinfo((directory / "mountinfo").read_text())
    held = int(status["CapPrm"], 16) | int(status["CapEff"], 16)
    return Confinement(
        cgroup_namespace=_own_namespace(directory, "cgroup"),
        groups_read_only=all(mount.read_only for mount in mounts),
        ipc_namespace=_own_namespace(directory, "ipc"),
        no_new_privs=status.get("NoNewPrivs") == "1",
        capabilities=tuple(_capability(number) for number in range(held.bit_length()) if held >> number & 1),
    )


def _own_namespace(directory: Path, kind: str) -> bool:
    return os.readlink(directory / "ns" / kind) != os.readlink(f"/proc/self/ns/{kind}")


def _capability(number: int) -> str:
    return CAPABILITIES[number] if number < len(CAPABILITIES) else f"CAP_{number}"


def _open_fds(directory: Path) -> dict[str, str]:
    targets = {}
    for name in sorted(os.listdir(directory), key=int):
        try:
            targets[name] = os.readlink(directory / name)
        except FileNotFoundError:
            continue  # closed while we looked
    return targets

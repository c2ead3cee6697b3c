"""A process as /proc shows it: besides the group's own files, the second witness of where it is (proc(5))."""

from __future__ import annotations

import os
from pathlib import Path

from milabench_ng.cgroup_files import parse_ids
from milabench_ng.records.isolation import ProcView


def read_process(pid: int) -> ProcView:
    """What /proc/PID shows now. Raises ProcessLookupError if there is no such process, or if it is ending.

    A process that ends gives up its memory before the kernel moves it to the root of every hierarchy.
    """
    directory = Path(f"/proc/{pid}")
    try:
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
        )
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(f"there is no process {pid} any more") from error


def _open_fds(directory: Path) -> dict[str, str]:
    targets = {}
    for name in sorted(os.listdir(directory), key=int):
        try:
            targets[name] = os.readlink(directory / name)
        except FileNotFoundError:
            continue  # closed while we looked
    return targets

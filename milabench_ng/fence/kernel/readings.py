"""Parses the kernel's counters, for all back ends that have them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from milabench_ng.fence.kernel.cgroupfs import Group2
from milabench_ng.model.errors import IsolationError
from milabench_ng.node.cgroup_files import Nested
from milabench_ng.node.kernel_files import kernel_table, kernel_text
from milabench_ng.records.isolation import Pressure


@contextlib.contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn the kernel's refusal into an error that names what was wanted."""
    try:
        yield
    except OSError as error:
        raise IsolationError(
            f"isolation: cannot {what}: {error.strerror} ({error.filename or 'while writing'}). "
            "mnb doctor shows what this node allows."
        ) from error


def pressure_of(group: Group2) -> dict[str, Pressure]:
    """The stall times of a v2 group by resource; empty on kernels without them (CONFIG_PSI, `psi=0`)."""
    found = {}
    for resource in ("cpu", "memory", "io"):
        try:
            found[resource] = _pressure(getattr(group.pressure, resource))
        except OSError:  # no such file, or EOPNOTSUPP if it is compiled in but switched off
            continue
    return found


def host_text(name: str) -> str:
    """The text of a /proc file; empty if it is unreadable (hardened containers hide vmstat)."""
    return kernel_text(Path("/proc", name)) or ""


def host_oom_kills() -> int | None:
    """Out-of-memory kills on the whole node; None if the kernel does not count them (before 4.13)."""
    return kernel_table(Path("/proc/vmstat")).get("oom_kill")


def io_bytes(stat: Nested) -> tuple[int, int]:
    """Bytes read and written over all devices of an `io.stat`."""
    read, written = (sum(int(pairs.get(key, 0)) for pairs in stat.values()) for key in ("rbytes", "wbytes"))
    return read, written


def _pressure(lines: Nested) -> Pressure:
    def seconds(pairs: Mapping[str, str] | None) -> float | None:
        return None if pairs is None else int(pairs["total"]) / 1e6

    return Pressure(seconds(lines["some"]) or 0.0, seconds(lines.get("full")))

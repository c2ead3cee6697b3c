"""What the kernel's CPU times add up to. Pure."""

from __future__ import annotations


def cpu_totals(
    user: float, nice: float, system: float, idle: float, iowait: float, irq: float, softirq: float, steal: float
) -> tuple[float, float, float]:
    """Busy, steal and total time, from the fields of a CPU in the order of proc(5), in their unit."""
    busy = user + nice + system + irq + softirq  # user time already includes guest time
    return busy, steal, busy + steal + idle + iowait

"""The limits of the conditions under which a launch may run: each with its unit, and where it comes from."""

from __future__ import annotations

from typing import Literal

import msgspec

ConditionKind = Literal[
    "throttled",
    "slow clock",
    "power cap",
    "GPU used by others",
    "foreign CPU load",
    "CPU steal",
    "swap",
    "host pace",
    "uncorrected ECC errors",
    "corrected ECC errors",
    "rows to be remapped",
    "XID",
    "PCIe link",
    "PCIe replays",
    "PCIe fatal errors",
    "NVLink down",
    "NVLink errors",
    "NVLink CRC errors",
    "memory pressure",
    "held back by a CPU quota",
    "prefetched items",
    "stall",
]
"""What is also a mark or a flag has its name."""

LimitUnit = Literal["%", "MiB", "a minute", "a second", ""]
"""``%`` is a share, 0 to 1."""


class Limit(msgspec.Struct, frozen=True):
    """What a condition may be."""

    most: float | None
    """None if the limit is the device's own, or for what is information only."""
    unit: LimitUnit
    told: str
    """The condition in words: ``{what}``, ``{value}`` and ``{limit}`` are those of one launch."""
    source: str
    """Why this limit."""


LIMITS: dict[ConditionKind, Limit] = {
    "throttled": Limit(
        0.005,
        "%",
        "clocks throttled ({what}) for {value}",
        "costs at most as much of the rate; a moment as the load begins is normal",
    ),
    "slow clock": Limit(
        0.1,
        "%",
        "clock {value} below that of the fastest device that ran the same",
        "equal GPUs at their power limit differ by some 3 to 5%",
    ),
    "power cap": Limit(
        None, "%", "at the power limit for {value}", "no limit: normal under full load, so information only"
    ),
    "GPU used by others": Limit(0.0, "", "{value} foreign processes on the GPU", "nobody else may use it"),
    "foreign CPU load": Limit(
        0.15,
        "%",
        "other programs used {value} of the busy CPU time",
        "idle nodes have 4 to 12%, for the kernel and mnb itself",
    ),
    "CPU steal": Limit(
        0.05, "%", "the hypervisor took {value} of the CPU time", "fully loaded virtual machines have up to 4.8%"
    ),
    "swap": Limit(64.0, "MiB", "{value} swapped in", "daemons of a node read back less now and then"),
    "host pace": Limit(
        0.05, "%", "CPU speed changed by {value}", "on idle virtual machines, 2 of 122 launch groups are beyond it"
    ),
    "uncorrected ECC errors": Limit(0.0, "", "{value} uncorrected ECC errors", "each may have changed a result"),
    "corrected ECC errors": Limit(
        10.0, "", "{value} corrected ECC errors", "DCGM's health check warns above 10; single ones are no fault"
    ),
    "rows to be remapped": Limit(
        0.0,
        "",
        "{value} rows of GPU memory await remapping, or could not be remapped",
        "NVIDIA: reset the GPU before its next use",
    ),
    "XID": Limit(0.0, "", "XID {what}", "the driver reports no error of a GPU that works"),
    "PCIe link": Limit(
        None, "", "PCIe {what} {value} under load, where {limit} is possible", "the link's own maximum, by the driver"
    ),
    "PCIe replays": Limit(8.0, "a minute", "{value} PCIe replays", "DCGM: the highest rate that NVIDIA recommends"),
    "PCIe fatal errors": Limit(0.0, "", "{value} fatal PCIe errors", "each resets the link"),
    "NVLink down": Limit(
        None, "", "{value} NVLinks up, where {limit} were", "those before the launch group, or of the node's other GPUs"
    ),
    "NVLink errors": Limit(0.0, "", "{value} NVLink replays and recoveries", "DCGM's health check fails at the first"),
    "NVLink CRC errors": Limit(100.0, "a second", "{value} NVLink CRC errors", "DCGM: lower rates do not matter"),
    "memory pressure": Limit(
        0.05,
        "%",
        "stalled {value} of the time for memory of its share",
        "reading through the page cache of a share takes less",
    ),
    "held back by a CPU quota": Limit(
        0.005, "%", "held back for {value} by the CPU quota of {what}", "costs at most as much of the rate"
    ),
    "prefetched items": Limit(
        0.02,
        "%",
        "{value} of the window's items prefetched before it",
        "a batch more or less in a short window",
    ),
    "stall": Limit(None, "", "{what}", "by the other slices of the window"),
}

ON_HOST: frozenset[ConditionKind] = frozenset({"CPU steal", "swap", "host pace", "memory pressure"})
"""What nodes without GPUs have, too."""


def most(kind: ConditionKind) -> float:
    """The limit of a kind whose limit is the same everywhere."""
    found = LIMITS[kind].most
    if found is None:
        raise ValueError(f"{kind}: its limit is that of each device")
    return found

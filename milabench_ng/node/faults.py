"""Finds what happened to a GPU while it worked: lost, or hardware errors, according to its driver.

XID numbers are those of NVIDIA's "XID Errors" (docs.nvidia.com/deploy/xid-errors). Only those that indicate hardware
are used: faulty programs cause many others, such as 13, 31 and 43, and killed ones leave 45.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from milabench_ng.node.conditions import Conditions

LOST = {79: "the GPU has fallen off the bus", 154: "the GPU needs a reset or a reboot"}
BROKEN = {
    48: "uncorrectable ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping",
    64: "ECC page retirement or row remapping failed",
    74: "NVLink error",
    92: "high rate of single-bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    110: "security fault",
    119: "GSP timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialization failed",
    149: "NVLink NETIR error",
    156: "resource retirement",
    157: "resource retirement failed",
}
_LOST_TEXT = "lost"
"""NVML_ERROR_GPU_IS_LOST in words."""


class DeviceFault(msgspec.Struct, frozen=True):
    """What is wrong with one GPU."""

    cause: Literal["device_lost", "device_error"]
    detail: str


def device_fault(
    board: str, before: Conditions, after: Conditions, xids: Mapping[str, Sequence[int]]
) -> DeviceFault | None:
    """What happened to the GPU ``board`` between two edges; None if nothing did. Pure."""
    numbers = xids.get(board, ())
    for number in numbers:
        if number in LOST:
            return DeviceFault("device_lost", f"{board}: XID {number}: {LOST[number]}")
    for name, text in after.errors.items():
        if name.startswith(f"{board} ") and name not in before.errors and _LOST_TEXT in text.lower():
            return DeviceFault("device_lost", f"{board}: {text}")
    for number in numbers:
        if number in BROKEN:
            return DeviceFault("device_error", f"{board}: XID {number}: {BROKEN[number]}")
    first, last = before.gpus.get(board), after.gpus.get(board)
    if first and last and (last.ecc_uncorrected or 0) > (first.ecc_uncorrected or 0):
        count = (last.ecc_uncorrected or 0) - (first.ecc_uncorrected or 0)
        return DeviceFault("device_error", f"{board}: {count} uncorrectable ECC errors")
    return None

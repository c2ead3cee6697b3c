"""What devices can do at most, as their makers publish it. Dense rates: structured sparsity is not counted."""

from __future__ import annotations

import msgspec

from milabench_ng.errors import InputError


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """Of one device. Arithmetic in 1e12 operations per second, memory in 1e9 bytes per second."""

    name: str
    fp32: float
    """Without tensor cores."""
    tf32: float | None
    half: float
    """fp16 and bf16 with fp32 accumulation, on tensor cores where there are any."""
    memory: float
    source: str

    def arithmetic(self, mode: str) -> float | None:
        """Of the precision ``mode``; None where the device has none such."""
        if mode == "fp32":
            return self.fp32
        return self.tf32 if mode == "tf32" else self.half


PEAKS = (
    Peak(
        name="H200 SXM",
        fp32=67.0,
        tf32=494.7,
        half=989.4,
        memory=4800.0,
        source="NVIDIA H200 Tensor Core GPU data sheet (2024); tensor rates are half of those printed with sparsity",
    ),
    Peak(
        name="H100 SXM",
        fp32=67.0,
        tf32=494.7,
        half=989.4,
        memory=3350.0,
        source="NVIDIA H100 Tensor Core GPU data sheet (2023); tensor rates are half of those printed with sparsity",
    ),
    Peak(
        name="A100-SXM4-80GB",
        fp32=19.5,
        tf32=156.0,
        half=312.0,
        memory=2039.0,
        source="NVIDIA A100 Tensor Core GPU data sheet (2021)",
    ),
    Peak(
        name="A100-SXM4-40GB",
        fp32=19.5,
        tf32=156.0,
        half=312.0,
        memory=1555.0,
        source="NVIDIA A100 Tensor Core GPU data sheet (2020)",
    ),
    Peak(
        name="V100-SXM2-32GB",
        fp32=15.7,
        tf32=None,
        half=125.0,
        memory=900.0,
        source="NVIDIA V100 Tensor Core GPU data sheet (2020)",
    ),
)

_SAME = {"NVIDIA H200": "H200 SXM", "NVIDIA H100 80GB HBM3": "H100 SXM"}
"""What NVML calls a device, where it is not the name above behind ``NVIDIA`` or ``Tesla``."""


def peak(name: str) -> Peak | None:
    """Of the device that NVML or a person calls ``name``; None of an unknown one."""
    wanted = _SAME.get(name, name.removeprefix("NVIDIA ").removeprefix("Tesla "))
    return next((each for each in PEAKS if each.name == wanted), None)


def known_peak(name: str, what: str) -> Peak:
    """`peak`, or an error that names the known ones; ``what`` is the option or file that asks."""
    found = peak(name)
    if found is None:
        known = ", ".join(each.name for each in PEAKS)
        raise InputError(f"{what}: the peak rates of {name!r} are not known; there are {known}")
    return found

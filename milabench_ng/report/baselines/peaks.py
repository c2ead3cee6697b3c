"""Peak rates of devices, as published by their makers. Dense rates: structured sparsity is not counted."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from milabench_ng.errors import InputError

Architecture = Literal["volta", "turing", "ampere", "hopper"]
Arithmetic = Literal["fp32", "tf32", "half"]
"""The kind of arithmetic: fp32 without tensor cores, TF32, and fp16 or bf16 with fp32 accumulation."""


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rates of one device. Arithmetic is in 1e12 operations per second, memory in 1e9 bytes per second."""

    name: str
    architecture: Architecture
    fp32: float
    """Without tensor cores."""
    tf32: float | None
    half: float
    """fp16 and bf16 with fp32 accumulation, on tensor cores."""
    memory: float
    source: str

    def arithmetic(self, kind: Arithmetic) -> float | None:
        """The peak of this kind; None if the device lacks it."""
        rates = {"fp32": self.fp32, "tf32": self.tf32, "half": self.half}
        return rates[kind]


def arithmetic_of(mode: str) -> Arithmetic:
    """The arithmetic of a precision mode."""
    return "fp32" if mode == "fp32" else "tf32" if mode == "tf32" else "half"


def distance(source: Peak, target: Peak, kind: Arithmetic) -> float | None:
    """The logarithm of the geometric mean of the arithmetic and memory ratios; None if a device lacks ``kind``."""
    ours, theirs = source.arithmetic(kind), target.arithmetic(kind)
    if ours is None or theirs is None:
        return None
    return (math.log(theirs / ours) + math.log(target.memory / source.memory)) / 2


_HALVED = "tensor rates are half of those printed with sparsity"
_V100 = "NVIDIA V100 Tensor Core GPU data sheet (2020), SXM2"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet (2020, 2021)"
_H100 = f"NVIDIA H100 Tensor Core GPU data sheet (2023); {_HALVED}"

PEAKS = (
    Peak(
        name="H200 SXM",
        architecture="hopper",
        fp32=66.9,
        tf32=494.7,
        half=989.4,
        memory=4800.0,
        source=f"NVIDIA H200 Tensor Core GPU data sheet (2024); {_HALVED}",
    ),
    Peak(
        name="H100 SXM",
        architecture="hopper",
        fp32=66.9,
        tf32=494.7,
        half=989.4,
        memory=3350.0,
        source=_H100,
    ),
    Peak(
        name="H100 PCIe",
        architecture="hopper",
        fp32=51.2,
        tf32=378.0,
        half=756.0,
        memory=2000.0,
        source=_H100,
    ),
    Peak(
        name="A100-SXM4-80GB",
        architecture="ampere",
        fp32=19.5,
        tf32=156.0,
        half=312.0,
        memory=2039.0,
        source=_A100,
    ),
    Peak(
        name="A100-SXM4-40GB",
        architecture="ampere",
        fp32=19.5,
        tf32=156.0,
        half=312.0,
        memory=1555.0,
        source=_A100,
    ),
    Peak(
        name="A100-PCIE-80GB",
        architecture="ampere",
        fp32=19.5,
        tf32=156.0,
        half=312.0,
        memory=1935.0,
        source=_A100,
    ),
    Peak(
        name="A100-PCIE-40GB",
        architecture="ampere",
        fp32=19.5,
        tf32=156.0,
        half=312.0,
        memory=1555.0,
        source=_A100,
    ),
    Peak(
        name="V100-SXM2-32GB",
        architecture="volta",
        fp32=15.7,
        tf32=None,
        half=125.0,
        memory=900.0,
        source=_V100,
    ),
    Peak(
        name="V100-SXM2-16GB",
        architecture="volta",
        fp32=15.7,
        tf32=None,
        half=125.0,
        memory=900.0,
        source=_V100,
    ),
    Peak(
        name="Quadro RTX 8000",
        architecture="turing",
        fp32=16.3,
        tf32=None,
        half=130.5,
        memory=672.0,
        source="NVIDIA Quadro RTX 8000 data sheet (2018)",
    ),
)

_SAME = {
    "NVIDIA H200": "H200 SXM",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA A100 80GB PCIe": "A100-PCIE-80GB",
    "NVIDIA V100": "V100-SXM2-32GB",
}
"""NVML's names that are not ``NVIDIA`` or ``Tesla`` plus the name above. The published figures of 2020 do not say which
V100 they are for: this takes the usual one for nodes of eight."""


def peak(name: str) -> Peak | None:
    """The peaks of the device that NVML or a person calls ``name``; None if unknown."""
    wanted = _SAME.get(name, name.removeprefix("NVIDIA ").removeprefix("Tesla "))
    return next((each for each in PEAKS if each.name == wanted), None)


def known_peak(name: str, what: str) -> Peak:
    """`peak`, or an error that names the known ones; ``what`` is the option or file that asks."""
    found = peak(name)
    if found is None:
        known = ", ".join(each.name for each in PEAKS)
        raise InputError(f"{what}: the peak rates of {name!r} are not known; there are {known}")
    return found

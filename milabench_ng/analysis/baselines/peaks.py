"""Peak rates of devices, as published by their makers. Dense rates: structured sparsity is not counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from milabench_ng.catalogue import DEVICE_PEAKS

Architecture = Literal["volta", "turing", "ampere", "hopper"]
Arithmetic = Literal["fp32", "tf32", "half"]
"""The kind of arithmetic: fp32 without tensor cores, TF32, and fp16 or bf16 with fp32 accumulation."""


class Peak(msgspec.Struct, frozen=True):
    """Peak rates of one device. Arithmetic is in 1e12 operations per second, memory in 1e9 bytes per second."""

    name: str
    architecture: Architecture
    fp32: float
    """Without tensor cores."""
    tf32: float | None
    half: float
    """fp16 and bf16 with fp32 accumulation, on tensor cores."""
    memory: float
    size: float
    """Of its memory, in GiB, as its name or data sheet has it."""
    source: str
    fp8: float | None = None
    """fp8 with fp32 accumulation, on tensor cores; None if the device lacks it."""
    watts: float | None = None
    """The highest power that it is made for, with the coolers of all makers; None if that depends on the board."""
    clock_mhz: int | None = None
    """The highest clock of its cores, as NVML showed it on nodes of ours; None if none was seen."""

    def arithmetic(self, kind: Arithmetic) -> float | None:
        """The peak of this kind; None if the device lacks it."""
        rates = {"fp32": self.fp32, "tf32": self.tf32, "half": self.half}
        return rates[kind]


def arithmetic_of(mode: str) -> Arithmetic:
    """The arithmetic of a precision mode."""
    return "fp32" if mode == "fp32" else "tf32" if mode in ("tf32", "torch_default") else "half"


_HALVED = "tensor rates are half of those printed with sparsity"
_V100 = "NVIDIA V100 Tensor Core GPU data sheet (2020), SXM2"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet (2020, 2021)"
_H200 = f"NVIDIA H200 Tensor Core GPU data sheet (2024); {_HALVED}"
_H100 = f"NVIDIA H100 Tensor Core GPU data sheet (2023); {_HALVED}"

# Name, architecture, fp32, TF32, half, memory, size, source, fp8, watts, clock.
PEAKS = (
    Peak("H200 SXM", "hopper", 66.9, 494.7, 989.4, 4800.0, 141, _H200, 1979.0, 700, 1980),
    Peak("H100 SXM", "hopper", 66.9, 494.7, 989.4, 3350.0, 80, _H100, 1979.0, 700, 1980),
    Peak("H100 PCIe", "hopper", 51.2, 378.0, 756.0, 2000.0, 80, _H100, 1513.0, 350),
    Peak("A100-SXM4-80GB", "ampere", 19.5, 156.0, 312.0, 2039.0, 80, _A100, None, 500),
    Peak("A100-SXM4-40GB", "ampere", 19.5, 156.0, 312.0, 1555.0, 40, _A100, None, 400),
    Peak("A100-PCIE-80GB", "ampere", 19.5, 156.0, 312.0, 1935.0, 80, _A100, None, 300),
    Peak("A100-PCIE-40GB", "ampere", 19.5, 156.0, 312.0, 1555.0, 40, _A100, None, 250),
    Peak("V100-SXM2-32GB", "volta", 15.7, None, 125.0, 900.0, 32, _V100, None, 300),
    Peak("V100-SXM2-16GB", "volta", 15.7, None, 125.0, 900.0, 16, _V100, None, 300),
    Peak("Quadro RTX 8000", "turing", 16.3, None, 130.5, 672.0, 48, "NVIDIA Quadro RTX 8000 data sheet (2018)"),
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


def same_models(models: Iterable[str]) -> set[str]:
    """``models``, each under one name whoever wrote it; beside known ones, names that nobody knows do not count."""
    stated = {*models}
    known = {found.name for found in map(peak, stated) if found is not None}
    return known or stated


def peaks_in_formulas(models: Iterable[str]) -> dict[str, float]:
    """The peaks of the devices called ``models`` under their names in formulas of derived units.

    Empty unless all are of one model, whose peaks are known.
    """
    names = {*models}
    found = peak(names.pop()) if len(names) == 1 else None
    if found is None:
        return {}
    rates = zip(DEVICE_PEAKS, (found.half, found.memory, found.fp8), strict=True)
    return {name: rate for name, rate in rates if rate is not None}

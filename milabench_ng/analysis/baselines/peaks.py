"""Peak rates of devices, as published by their makers. Dense rates: structured sparsity is not counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from milabench_ng.model.catalogue import DEVICE_PEAKS

Architecture = Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna3", "cdna4"]
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
    """What states these figures, and where; one without a source is None."""
    fp8: float | None = None
    """fp8 with fp32 accumulation, on tensor cores; None if the device lacks it."""
    watts: float | None = None
    """The highest power that it is made for, with the coolers of all makers; None if that depends on the board."""
    clock_mhz: int | None = None
    """The highest clock of its cores, as NVML showed it on nodes of ours; None if none was seen."""
    fp4: float | None = None
    """fp4 with fp32 accumulation, on tensor cores; None if the device lacks it."""

    def arithmetic(self, kind: Arithmetic) -> float | None:
        """The peak of this kind; None if the device lacks it, or if no source of it is known."""
        rates = {"fp32": self.fp32, "tf32": self.tf32, "half": self.half}
        return rates[kind]


def arithmetic_of(mode: str) -> Arithmetic:
    return "fp32" if mode == "fp32" else "tf32" if mode in ("tf32", "torch_default") else "half"


_HALVED = "tensor rates are half of those printed with sparsity"
_V100 = "NVIDIA V100 Tensor Core GPU data sheet (2020), SXM2"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet (2020, 2021)"
_H200 = f"NVIDIA H200 Tensor Core GPU data sheet (2024); {_HALVED}"
_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_NODES = "memory and power: reference nodes in https://github.com/NVIDIA/exemplar-performance (97b1fd4, 2026)"
"""NVIDIA's own recipes. For a GPU of a rack they have 2,450, 4,900, 9,800 and 14,700, 2% below the data sheets."""
_HGX = f"NVIDIA HGX platform data sheet (2025), an eighth of a node, {_NVIDIA}/hgx/"
_NVL72 = "data sheet (2025), a 72nd of a rack"
_B200 = f"{_HGX}: of B200; {_HALVED}; {_NODES}"
_B300 = f"{_HGX}: of B300; {_HALVED}, fp4 as printed without; {_NODES}"
_GB200 = f"NVIDIA GB200 NVL72 {_NVL72}, {_NVIDIA}/gb200-nvl72/; {_HALVED}"
_GB300 = f"NVIDIA GB300 NVL72 {_NVL72}, {_NVIDIA}/gb300-nvl72/; {_HALVED}, fp4 as printed without"
_L40S = f"NVIDIA L40S data sheet (2023), without sparsity, {_NVIDIA}/l40s/"
_A10 = f"NVIDIA A10 data sheet (2021), without sparsity, {_NVIDIA}/products/a10-gpu/"
_PRO = (
    "NVIDIA RTX Blackwell PRO GPU architecture white paper (2025), table 4, dense rates with fp32 accumulation, "
    "https://www.nvidia.com/content/dam/en-zz/Solutions/design-visualization/quadro-product-literature/"
    "NVIDIA-RTX-Blackwell-PRO-GPU-Architecture-v1.0.pdf"
)
_SERVER = (
    "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet (2025); tensor rates are half of the 1, 2 and 4 PFLOPS on "
    f"its product page, {_NVIDIA}/rtx-pro-6000-blackwell-server-edition/; none is known in TF32"
)
_H100 = f"NVIDIA H100 Tensor Core GPU data sheet (2023); {_HALVED}"

_AMD = "AMD Instinct"
_PRODUCTS = "https://www.amd.com/en/products/accelerators/instinct"
_MI300X = f"{_AMD} MI300X data sheet (2023), {_PRODUCTS}/mi300/mi300x.html"
_MI325X = f"{_AMD} MI325X data sheet (2024), {_PRODUCTS}/mi300/mi325x.html"
_MI355X = (
    f"{_AMD} MI355X data sheet (2025), {_PRODUCTS}/mi350/mi355x.html, which rounds to 2.5, 5 and 10.1 PFLOPS: "
    "of its 256 compute units at 2,400 MHz"
)
_WORKSTATION = "RTX PRO 6000 Blackwell Workstation Edition"
_IN_SERVERS = "RTX PRO 6000 Blackwell Server Edition"

# Name, architecture, fp32, TF32, half, memory, size, source, fp8, watts, clock, fp4.
PEAKS = (
    Peak("GB300", "blackwell", 80.0, 1250.0, 2500.0, 8000.0, 279, _GB300, 5000.0, 1400, None, 15_000.0),
    Peak("B300", "blackwell", 75.0, 1125.0, 2250.0, 7700.0, 270, _B300, 4500.0, 1100, None, 13_500.0),
    Peak("GB200", "blackwell", 80.0, 1250.0, 2500.0, 8000.0, 186, _GB200, 5000.0, 1200, None, 10_000.0),
    Peak("B200", "blackwell", 75.0, 1125.0, 2250.0, 7700.0, 180, _B200, 4500.0, 1000, None, 9000.0),
    Peak("H200 SXM", "hopper", 66.9, 494.7, 989.4, 4800.0, 141, _H200, 1979.0, 700, 1980),
    Peak("H100 SXM", "hopper", 66.9, 494.7, 989.4, 3350.0, 80, _H100, 1979.0, 700, 1980),
    Peak("H100 PCIe", "hopper", 51.2, 378.0, 756.0, 2000.0, 80, _H100, 1513.0, 350),
    Peak("L40S", "ada", 91.6, 183.0, 362.05, 864.0, 48, _L40S, 733.0, 350),
    Peak(_WORKSTATION, "blackwell", 126.0, 251.9, 503.8, 1792.0, 96, _PRO, 1007.6, 600, None, 2015.2),
    Peak(_IN_SERVERS, "blackwell", 120.0, None, 500.0, 1597.0, 96, _SERVER, 1000.0, 600, None, 2000.0),
    Peak("A10", "ampere", 31.2, 62.5, 125.0, 600.0, 24, _A10, None, 150),
    Peak("MI355X", "cdna4", 157.3, None, 2516.6, 8000.0, 288, _MI355X, 5033.2, 1400, None, 10_066.3),
    Peak("MI325X", "cdna3", 163.4, 653.7, 1307.4, 6000.0, 256, _MI325X, 2614.9, 1000),
    Peak("MI300X", "cdna3", 163.4, 653.7, 1307.4, 5300.0, 192, _MI300X, 2614.9, 750),
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
    "NVIDIA B300 SXM6 AC": "B300",
    "AMD Instinct MI300X OAM": "MI300X",
    "AMD Instinct MI325X OAM": "MI325X",
    "AMD Instinct MI355X OAM": "MI355X",
}
"""Names of drivers that are not ``NVIDIA``, ``Tesla`` or ``AMD Instinct`` plus the name above. The published figures of
2020 do not say which V100 they are for: this takes the usual one for nodes of eight."""


def peak(name: str) -> Peak | None:
    """The peaks of the device that NVML or a person calls ``name``; None if unknown."""
    plain = name.removeprefix("NVIDIA ").removeprefix("Tesla ").removeprefix(f"{_AMD} ")
    wanted = _SAME.get(name, plain)
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
    rates = zip(DEVICE_PEAKS, (found.half, found.memory, found.fp8, found.fp4), strict=True)
    return {name: rate for name, rate in rates if rate is not None}

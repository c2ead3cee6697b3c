"""MXFP8 and NVFP4: narrow numbers in blocks of a row, each block with a scale, along what a product sums over.

On GPUs torch's scaled products multiply them as they are, from compute capability 10.0 on; elsewhere they are widened
first, which is the reference for what those must come to.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from milabench_ng.workloads.models.float8_linear import FP8, LARGEST

MX_BLOCK = 32
"""Numbers that share a scale in MXFP8."""
NV_BLOCK = 16
"""The same in NVFP4."""
LARGEST_E2M1 = 6.0
_MANTISSA, _EXPONENT_BIAS = 23, 127
"""Of fp32, whose exponent e8m0 has."""
_TILE_ROWS, _TILE_COLUMNS, _QUARTER = 128, 4, 32
_LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers of e2m1 without their sign, by code."""


class MXFP8(NamedTuple):
    """A matrix [R, K] of e4m3 (OCP Microscaling Formats, version 1.0)."""

    values: Tensor
    """[R, K]"""
    scales: Tensor
    """Powers of two (e8m0) of 32 numbers each, in tiles."""

    @classmethod
    def of(cls, matrix: Tensor, _largest: Tensor | None = None) -> MXFP8:
        """``matrix`` with scales rounded up, so that no number leaves the range (arXiv:2506.08027)."""
        blocks = matrix.float().view(len(matrix), -1, MX_BLOCK)
        most = blocks.abs().amax(2, keepdim=True) / LARGEST
        exponent = (most.view(torch.int32) + (1 << _MANTISSA) - 1) >> _MANTISSA
        exponent = exponent.clamp(1, 2 * _EXPONENT_BIAS - 1)
        one_over = ((2 * _EXPONENT_BIAS - exponent) << _MANTISSA).view(torch.float32)
        scales = tiled(exponent[..., 0].to(torch.uint8)).view(torch.float8_e8m0fnu)
        return cls((blocks * one_over).to(FP8).flatten(1).contiguous(), scales)

    def widened(self) -> Tensor:
        """In fp32."""
        rows, columns = self.values.shape
        scales = untiled(self.scales, rows, columns // MX_BLOCK).float()
        return self.values.float() * scales.repeat_interleave(MX_BLOCK, 1)

    def times(self, other: MXFP8, dtype: torch.dtype) -> Tensor:
        """[R, K] times the other one transposed, [C, K], as ``dtype`` [R, C]."""
        if not self.values.is_cuda:
            return (self.widened() @ other.widened().t()).to(dtype)
        product: Tensor = torch._scaled_mm(
            self.values, other.values.t(), scale_a=self.scales, scale_b=other.scales, out_dtype=dtype
        )
        return product


class NVFP4(NamedTuple):
    """A matrix [R, K] of e2m1, whose scales have one in common (arXiv:2509.25149)."""

    values: Tensor
    """Pairs of numbers, the first in the lower bits [R, K / 2]."""
    scales: Tensor
    """Of 16 numbers each in e4m3, in tiles."""
    whole: Tensor
    """What all scales are multiplied with, in fp32 []."""

    @classmethod
    def of(cls, matrix: Tensor, largest: Tensor) -> NVFP4:
        """``matrix``, none of whose numbers should be beyond ``largest``: they become the largest that there is."""
        whole = (largest / (LARGEST * LARGEST_E2M1)).clamp_min(1e-30)
        blocks = (matrix.float() / whole).view(len(matrix), -1, NV_BLOCK)
        scales = (blocks.abs().amax(2) / LARGEST_E2M1).clamp(max=LARGEST).to(FP8)
        units = scales.float()[..., None]
        codes = e2m1(blocks / torch.where(units > 0, units, 1)).flatten(1)
        pairs = codes[:, ::2] | codes[:, 1::2] << 4
        return cls(pairs.view(torch.float4_e2m1fn_x2), tiled(scales.view(torch.uint8)).view(FP8), whole)

    def widened(self) -> Tensor:
        """In fp32."""
        rows, columns = self.values.shape[0], 2 * self.values.shape[1]
        pairs = self.values.view(torch.uint8)
        codes = torch.stack((pairs & 15, pairs >> 4), 2).flatten(1)
        levels = torch.tensor([*_LEVELS, *(-level for level in _LEVELS)], device=pairs.device)
        scales = untiled(self.scales, rows, columns // NV_BLOCK).float() * self.whole
        return levels[codes.int()] * scales.repeat_interleave(NV_BLOCK, 1)

    def times(self, other: NVFP4, dtype: torch.dtype) -> Tensor:
        """[R, K] times the other one transposed, [C, K], as ``dtype`` [R, C]."""
        if not self.values.is_cuda:
            return (self.widened() @ other.widened().t()).to(dtype)
        recipe = [F.ScalingType.BlockWise1x16, F.ScalingType.TensorWise]
        layout = [F.SwizzleType.SWIZZLE_32_4_4, F.SwizzleType.NO_SWIZZLE]
        product: Tensor = F.scaled_mm(
            self.values,
            other.values.t(),
            [self.scales, self.whole],
            recipe,
            [other.scales, other.whole],
            recipe,
            layout,
            layout,
            output_dtype=dtype,
        )
        return product


def e2m1(values: Tensor) -> Tensor:
    """The codes of the nearest numbers of e2m1, of two equally near ones the even code; uint8, the sign in bit 3."""
    size = values.abs()
    code = torch.minimum(torch.minimum(2 * size, size + 2), size / 2 + 4).round_().clamp_(max=len(_LEVELS) - 1)
    return code.to(torch.uint8) | (values < 0).to(torch.uint8) << 3


def tiled(scales: Tensor) -> Tensor:
    """Scales [R, C] of one byte each, as cuBLAS wants them: in tiles of 128 x 4, filled up with zeros.

    Rows of a tile are interleaved by quarters: cuBLAS, "1D block scaling factors layout".
    """
    rows, columns = -(-scales.shape[0] // _TILE_ROWS), -(-scales.shape[1] // _TILE_COLUMNS)
    missing = (0, columns * _TILE_COLUMNS - scales.shape[1], 0, rows * _TILE_ROWS - scales.shape[0])
    quarters = F.pad(scales, missing).reshape(rows, -1, _QUARTER, columns, _TILE_COLUMNS)
    return quarters.permute(0, 3, 2, 1, 4).flatten()


def untiled(scales: Tensor, rows: int, columns: int) -> Tensor:
    """What `tiled` made of scales [rows, columns]."""
    across = -(-columns // _TILE_COLUMNS)
    tiles = scales.view(torch.uint8).view(-1, across, _QUARTER, _TILE_ROWS // _QUARTER, _TILE_COLUMNS)
    whole = tiles.permute(0, 3, 2, 1, 4).reshape(-1, across * _TILE_COLUMNS)
    return whole[:rows, :columns].contiguous().view(scales.dtype)

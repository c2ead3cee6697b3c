"""Chains of matrix products, each of which multiplies what the last one came to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from milabench_ng.workloads.models.float8_linear import FP8

Numbers = Literal["bf16", "fp16", "fp8", "fp32"]
VALUES = "normal (mean 0, variance 1)"
"""With zeros, an H200 takes 41 % less power, and most errors leave no trace."""


class Chain:
    """A normal random matrix, multiplied over and over by another that keeps the spread of its values."""

    dtype = torch.float32
    spread = 1.0
    """The standard deviation of its values as they are stored."""

    def __init__(self, device: torch.device, side: int, products: int) -> None:
        """``products``: of a lap."""
        self.products = products
        self._shrink = 1 / math.sqrt(side)
        self.start = (torch.randn(side, side, device=device) * self.spread).to(self.dtype)
        self.factor = (torch.randn(side, side, device=device) * self.factor_spread()).to(self.dtype)
        self._turns = [torch.empty_like(self.start) for _ in range(2)]
        words = side * self.start.element_size() // 8
        self._weights = torch.randint(-(1 << 62), 1 << 62, (words,), device=device).mul_(2).add_(1)

    def factor_spread(self) -> float:
        """The standard deviation of the factor's values: a product then has the spread of what it multiplied."""
        return self._shrink

    def product(self, left: Tensor, out: Tensor) -> None:
        torch.mm(left, self.factor, out=out)

    def lap(self, before: Callable[[], None]) -> Tensor:
        """All products; what the last came to. ``before``: called before each."""
        current = self.start
        for number in range(self.products):
            before()
            out = self._turns[number % 2]
            self.product(current, out)
            current = out
        return current

    def digest(self, matrix: Tensor) -> Tensor:
        """The sums of all columns of 64 bits, each times a random odd number, modulo 2^64: int64 [1].

        It reads the memory once. An error stays in its row, where it changes the last bits of many values up and down.
        In a sum of the row they would often cancel out.
        """
        return (matrix.view(torch.int64).sum(0) * self._weights).sum(0, keepdim=True)

    def inputs(self) -> Tensor:
        """Digests of both matrices that all laps begin with: int64 [2]."""
        return torch.cat((self.digest(self.start), self.digest(self.factor)))


class BF16Chain(Chain):
    """In bf16, summed in fp32."""

    dtype = torch.bfloat16


class FP16Chain(Chain):
    """In fp16, summed in fp32."""

    dtype = torch.float16


class FP8Chain(Chain):
    """In fp8 (e4m3), with scales that do not change: values stay in the middle of its range."""

    dtype = FP8
    spread = 16.0
    """Its largest number is 28 of them away."""

    def __init__(self, device: torch.device, side: int, products: int) -> None:
        super().__init__(device, side, products)
        self._one = torch.ones((), device=device)
        self._scale = torch.full((), self._shrink / self.spread, device=device)

    def factor_spread(self) -> float:
        """As all numbers: the scale of a product shrinks it."""
        return self.spread

    def product(self, left: Tensor, out: Tensor) -> None:
        torch._scaled_mm(
            left,
            self.factor.t(),  # products in fp8 need its columns one after the other
            scale_a=self._scale,
            scale_b=self._one,
            scale_result=self._one,
            out_dtype=self.dtype,
            use_fast_accum=True,
            out=out,
        )


CHAINS: dict[Numbers, type[Chain]] = {"bf16": BF16Chain, "fp16": FP16Chain, "fp8": FP8Chain, "fp32": Chain}

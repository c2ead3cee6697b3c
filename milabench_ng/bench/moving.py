"""Moves the tensors in nested values between host and device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def to_device(value: Any, device: torch.device, floating: torch.dtype | None) -> Any:
    """``value`` with its tensors, also within lists, tuples and dicts, on ``device``; only named tuples stay tuples.

    ``floating``: the type that floating-point tensors get; None keeps theirs. The copy is asynchronous where it can be.
    """
    if isinstance(value, Tensor):
        return value.to(device, dtype=floating if value.is_floating_point() else None, non_blocking=True)
    if isinstance(value, dict):
        return {key: to_device(item, device, floating) for key, item in value.items()}
    if isinstance(value, list | tuple):
        moved = [to_device(item, device, floating) for item in value]
        return type(value)(*moved) if hasattr(value, "_fields") else moved
    return value


def to_host(value: Any) -> Any:
    """``value`` with its tensors, also within lists, tuples and dicts, on the host, floating-point ones in fp32.

    Waits for the device.
    """
    if isinstance(value, Tensor):
        return (value.float() if value.is_floating_point() else value).cpu()
    if isinstance(value, dict):
        return {key: to_host(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_host(item) for item in value]
    return value


def tensors(value: Any) -> list[Tensor]:
    """The tensors in ``value``, in order."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that ranks share out (DTensor); any other tensor as it is."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part

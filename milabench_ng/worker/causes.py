"""Maps a workload's exception to a cause: the device's memory, the device itself, the data, or the workload."""

from __future__ import annotations

import re

import torch

from milabench_ng.model.errors import DataError, WrongResultError
from milabench_ng.model.events import Cause

OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
LOST = (
    "no CUDA-capable device is detected",
    "CUDA-capable device(s) is/are busy or unavailable",
    "device is lost",
    "fallen off the bus",
    "device not ready",
    "system not yet initialized",
)
"""cudaErrorNoDevice, cudaErrorDevicesUnavailable, cudaErrorSystemNotReady in the words of cudaGetErrorString."""
LOADER_KILLED = re.compile(r"DataLoader worker \(pid[^)]*\) is killed by signal: .*")
BROKEN = (
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "hardware stack error",
    "contained error",
    "CUDA error: unknown error",
)
"""cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError, cudaErrorContained."""


def text_of(error: BaseException) -> str:
    """What an exception says, also if that raises another: a library's ``__str__`` may."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001  # whatever the workload's own code raises
        return f"the error message could not be read: {type(another).__name__}"


def told(error: Exception) -> Exception:
    """The most informative exception: for a loader that died, the one that names the signal."""
    return next((one for one in (error.__cause__, error) if isinstance(one, Exception) and _is_killed(one)), error)


def cause_of(error: Exception) -> Cause:
    if isinstance(error, torch.OutOfMemoryError):
        return "device_oom"
    if isinstance(error, WrongResultError):
        return "mismatch"
    if isinstance(error, DataError):
        return "data_error"
    if _is_killed(error):
        return "signal"
    return _of_device(text_of(error)) if isinstance(error, RuntimeError) else "exception"


def _is_killed(error: Exception) -> bool:
    return bool(LOADER_KILLED.match(text_of(error)))


def _of_device(text: str) -> Cause:
    """The cause that CUDA, cuBLAS, cuDNN or NCCL report in an exception's text."""
    if "CUDA" not in text and "NCCL" not in text and "CUBLAS" not in text and "CUDNN" not in text:
        return "exception"
    found: tuple[tuple[Cause, tuple[str, ...]], ...] = (
        ("device_oom", OUT_OF_MEMORY),
        ("device_error", BROKEN),
        ("device_lost", LOST),
    )
    return next((cause for cause, words in found if any(word in text for word in words)), "exception")

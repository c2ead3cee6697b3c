"""Which cause an exception is, by type and by the words of CUDA and NCCL."""

from __future__ import annotations

import pytest
import torch

from milabench_ng.model.errors import DataError, WrongResultError
from milabench_ng.worker.causes import cause_of, told


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), "device_oom"),
        (RuntimeError("CUDA error: out of memory"), "device_oom"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "device_oom"),
        (RuntimeError("NCCL Error 1: unhandled cuda error: Cuda failure 2 'out of memory'"), "device_oom"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "device_error"),
        (RuntimeError("CUDA error: uncorrectable NVLink error detected during the execution"), "device_error"),
        (RuntimeError("No CUDA GPUs are available"), "exception"),
        (RuntimeError("CUDA error: no CUDA-capable device is detected"), "device_lost"),
        (RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), "device_lost"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "exception"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: out of memory"), "exception"),
        (MemoryError("out of memory"), "exception"),
        (DataError("dataset mnist in /d: bad"), "data_error"),
        (WrongResultError("1 of 8 bytes came back other than sent"), "mismatch"),
        (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "), "signal"),
        (RuntimeError("DataLoader worker (pid(s) 12) exited unexpectedly"), "exception"),
        (ValueError("CUDA out of memory"), "exception"),
    ],
)
def test_causes(error: Exception, cause: str) -> None:
    assert cause_of(error) == cause


def test_of_a_dead_loader_the_exception_with_the_signal_is_told() -> None:
    killed = RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. ")
    ended = RuntimeError("DataLoader worker (pid(s) 12) exited unexpectedly")
    assert told(ended) is ended
    ended.__cause__ = killed
    assert told(ended) is killed
    assert told(killed) is killed
    other = ValueError("x")
    other.__cause__ = ended
    assert told(other) is other

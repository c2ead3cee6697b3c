"""The worker's environment: an allow-list by name and prefix, so that it can be recorded whole.

An operator's ``NCCL_*``, ``NVSHMEM_*`` and ``TORCH_*`` settings must reach every rank: losing them can hang a node or
take GPUs out of service that others share.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES = frozenset({"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "LD_LIBRARY_PATH", "XDG_CACHE_HOME"})
PREFIXES = (
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "NVSHMEM_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "PYTORCH_",
    "CUBLAS_",
    "CUDNN_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "GLOO_",
    "UCX_",
    "MNB_",
    "LC_",
)
INJECTED = ("INJECTION",)
"""Variables that load foreign code into CUDA programs."""
REPORTED = ("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONUSERBASE")
"""Variables whose absence may surprise: dropped by name in the record."""


def worker_environment(environ: Mapping[str, str], own: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """What a worker gets of ``environ``, with ``own`` on top; and the names of dropped variables that load code."""
    kept = {name: value for name, value in environ.items() if _allowed(name)}
    dropped = tuple(sorted(name for name in environ if name in REPORTED or _injects(name)))
    return {**kept, **own}, dropped


def _allowed(name: str) -> bool:
    return (name in NAMES or name.startswith(PREFIXES)) and not _injects(name)


def _injects(name: str) -> bool:
    return any(word in name for word in INJECTED)

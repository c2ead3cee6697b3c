"""The worker's environment: an allow-list by name and prefix, so that it can be recorded in full.

An operator's ``NCCL_*``, ``NVSHMEM_*`` and ``TORCH_*`` settings must reach every rank: losing them can hang a node or
take shared GPUs out of service. Threads are the share's affair (`fence.sharing.shares.environment`), so those of
OpenMP and MKL stay behind: one thread makes a neighbour that presses on nothing.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Mapping

from milabench_ng.plain import encodable

NAMES = frozenset({"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "XDG_CACHE_HOME"})
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
    "GLOO_",
    "UCX_",
    "MNB_",
    "LC_",
)
LOADS_CODE = re.compile(
    r"LD_.*"  # the dynamic loader: LD_LIBRARY_PATH, LD_PRELOAD, LD_AUDIT (ld.so(8))
    r"|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|MALLOC_.*"
    r"|PYTHON.*"
    r"|BASH_ENV|ENV"
    r"|.*INJECTION.*|.*PRELOAD.*"  # CUDA_INJECTION64_PATH, NVTX_INJECTION64_PATH: tools in every CUDA process (CUPTI)
    r"|(CUDA_|COMPUTE_)PROFILE.*|NSYS_.*|NVPROF_.*"
    r"|OMP_TOOL.*|KMP_TOOL.*"  # tools of the OpenMP runtime (OMPT)
)
"""Variables that inject foreign code into a program, or profile it during the measurement: dropped and reported."""
ALWAYS = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
"""torch imports no ``torch.backends`` entry point that it finds on the import path."""
PYCACHE = "PYTHONPYCACHEPREFIX"
"""The folder of compiled modules, a new one in each session: no ``.pyc`` beside a source file stands for it."""
SITE_HOOKS = ("sitecustomize", "usercustomize")
"""Modules that Python runs at startup if it finds them; workers run none (`requests.python_command`)."""


def worker_environment(
    environ: Mapping[str, str], own: Mapping[str, str], demanded: Collection[str] = ()
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What a worker gets of ``environ``, overridden by ``own``; and the names of dropped variables that load code.

    ``demanded``: variables that it gets whatever they do. Bytes that are not UTF-8 are escaped (``\\xff``),
    so that a worker gets what its record says.
    """
    kept = {encodable(name): encodable(value) for name, value in environ.items() if _allowed(name) or name in demanded}
    dropped = tuple(sorted(encodable(name) for name in environ if LOADS_CODE.fullmatch(name) and name not in demanded))
    return {**kept, **ALWAYS, **own}, dropped


def site_hooks() -> tuple[str, ...]:
    """The site hooks in this installation: dropped and reported like the variables."""
    return tuple(name for name in SITE_HOOKS if importlib.util.find_spec(name) is not None)


def _allowed(name: str) -> bool:
    return (name in NAMES or name.startswith(PREFIXES)) and not LOADS_CODE.fullmatch(name)

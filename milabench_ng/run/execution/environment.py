"""The worker's environment: an allow-list (`records.worker_variables`), so that it can be recorded in full.

An operator's settings of the fabric must reach every rank: losing them can hang a node or take shared GPUs out of
service. Threads are the share's affair (`fence.sharing.shares.environment`): one thread makes a neighbour that presses
on nothing.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Mapping

from milabench_ng.model.plain import encodable
from milabench_ng.records.worker_variables import listed

_OF_MNB = "MNB_"
"""Its own variables reach its workers; those for development are not on the list."""
_STEERING = ("CUDA", "NVIDIA_", "NCCL_", "NVSHMEM_", "TORCH", "PYTORCH_", "CUBLAS", "CUDNN_", "GLOO_", "UCX_")
"""How names of variables begin that could change what a worker does, so that dropping them is told."""
_SET_BY_SHARES = re.compile(r"(OMP|MKL|OPENBLAS)_NUM_THREADS|PYTHON.*|TMPDIR")
"""On the list, since mnb sets them for each tenant."""
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
_QUIETLY = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
"""Dropped without a word: most images of containers set them, and they change no result."""
ALWAYS = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
"""torch imports no ``torch.backends`` entry point that it finds on the import path."""
PYCACHE = "PYTHONPYCACHEPREFIX"
"""The folder of compiled modules, a new one in each session: no ``.pyc`` beside a source file stands for it."""
SITE_HOOKS = ("sitecustomize", "usercustomize")
"""Modules that Python runs at startup if it finds them; workers run none (`requests.python_command`)."""


def worker_environment(
    environ: Mapping[str, str], own: Mapping[str, str], demanded: Collection[str] = ()
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What a worker gets of ``environ``, overridden by ``own``; and the names of dropped ones that matter.

    ``demanded``: variables that it gets whatever they do. Bytes that are not UTF-8 are escaped (``\\xff``),
    so that a worker gets what its record says.
    """
    passed = {name: value for name, value in environ.items() if _allowed(name) or name in demanded}
    kept = {encodable(name): encodable(value) for name, value in passed.items()}
    dropped = tuple(sorted(encodable(name) for name in environ if name not in passed and _steers(name)))
    return {**kept, **ALWAYS, **own}, dropped


def site_hooks() -> tuple[str, ...]:
    """The site hooks in this installation: dropped and reported like the variables."""
    return tuple(name for name in SITE_HOOKS if importlib.util.find_spec(name) is not None)


def _allowed(name: str) -> bool:
    if LOADS_CODE.fullmatch(name) or _SET_BY_SHARES.fullmatch(name):
        return False
    return listed(name) or name.startswith(_OF_MNB)


def _steers(name: str) -> bool:
    if name in ALWAYS or name in _QUIETLY:
        return False
    return bool(LOADS_CODE.fullmatch(name)) or name.startswith(_STEERING)

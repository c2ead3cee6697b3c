"""The one list of environment variables: these reach a worker, and a closed run has no others."""

from __future__ import annotations

import re
from collections.abc import Mapping

STORAGE_VARIABLE = "MNB_STORAGE"
"""Names the folder in which workers may write files, below the data root; set if a workload of the run does."""
_FABRIC = r"(NCCL|NVSHMEM|UCX|GLOO|TORCH_NCCL|TORCH_SYMM_MEM)_\w+"
_LISTED = re.compile(
    r"PATH|HOME|LANG|LANGUAGE|LC_\w+|TZ|USER|LOGNAME|XDG_CACHE_HOME|TMPDIR"  # where things are, and language
    r"|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|HOME|PATH|CACHE_PATH|MPS_\w+)"
    r"|(ROCR|HIP)_VISIBLE_DEVICES"
    r"|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_\w+|PRODUCT_NAME|BUILD_ID)"
    r"|(CUDA|CUDA_DRIVER|CUBLAS|CUDNN|NCCL|PYTORCH(_\w+)?|NVIDIA_\w+)_VERSION"  # container images say what they hold
    r"|PYTORCH_(HOME|BUILD_NUMBER)|TORCH_CUDA_ARCH_LIST|CUDA_COMPONENT_LIST"
    rf"|{_FABRIC}"  # which the operator sets up
    r"|(OMP|MKL|OPENBLAS)_NUM_THREADS|PYTHON_CPU_COUNT|PYTHONPYCACHEPREFIX|TORCH_DEVICE_BACKEND_AUTOLOAD"  # set by mnb
    r"|MNB_(CPUS|RAM_BYTES|STORAGE|DATAROOT|OUTROOT|SCOPE)"
)
_LOADS_CODE = re.compile(r"(NCCL|NVSHMEM|UCX|GLOO)_\w*(PLUGIN|MODULE|LIBRARY|CONF|PRELOAD|INJECTION)\w*")
"""Variables of the fabric that name libraries to load, or files with more settings (env.html of NCCL, UCX, NVSHMEM)."""
_OF_THE_SYSTEM = ("/usr/", "/lib/", "/lib64/")
"""Whoever can put a library there needs no variable for it."""


def listed(name: str, value: str = "") -> bool:
    """Whether a variable, with that value, may be there: it says where something is, or how devices are connected."""
    if name == "LD_LIBRARY_PATH":  # only `--pass-env` passes it on, where the driver's libraries are found by it
        return bool(value) and all(f"{folder}/".startswith(_OF_THE_SYSTEM) for folder in value.split(":") if folder)
    return bool(_LISTED.fullmatch(name)) and not _LOADS_CODE.fullmatch(name)


def of_messages(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that say how messages travel between devices."""
    return {name: value for name, value in sorted(variables.items()) if re.fullmatch(_FABRIC, name)}

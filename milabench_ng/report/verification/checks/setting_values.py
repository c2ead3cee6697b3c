"""Values of listed settings: a name says where something is, and the value may say that it is the vendor's own."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath

from milabench_ng.records.record import Mnb, Record
from milabench_ng.requests import STORAGE_VARIABLE

LOADS_CODE = re.compile(r"(NCCL|NVSHMEM|UCX|GLOO)_\w*(PLUGIN|MODULE|LIBRARY|CONF)\w*")
"""Variables of the fabric that name libraries to load, or files with more settings (env.html of NCCL, UCX, NVSHMEM)."""
_FOLDERS = ("PATH", "CUDA_HOME", "CUDA_PATH")
"""Variables with the folders of programs."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/opt", "/snap", "/nix")
"""Where a system and its packages have programs."""
_HOME = re.compile(r"/root|/home/[^/]+")
_PART = re.compile(r"bin|(local/)?lib(32|64)?/python[\d.]+(\.zip)?(/(lib-dynload|site-packages|dist-packages))?")
"""Folders of a Python installation or environment that belong on an import path (the library's ``site``)."""
PINNED = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""The only value that a variable may have."""


def odd_values(record: Record, roots: Collection[str]) -> Iterator[tuple[str, str]]:
    """The variables of a launch's environment whose values are not those of a clean node, with what is wrong.

    ``roots``: folders of the Python installation, its environment and mnb; empty if the ledger does not tell them.
    """
    mnb, environment, dataroot = record.mnb, record.mnb.environment, record.dataroot
    for name, value in PINNED.items():
        if environment.get(name, value) != value:
            yield name, f"{name}={environment[name]}"
    visible, own = environment.get("CUDA_VISIBLE_DEVICES"), [one.uuid for one in mnb.devices if one.uuid]
    if visible is not None and visible != ",".join(own):
        yield "CUDA_VISIBLE_DEVICES", f"CUDA_VISIBLE_DEVICES={visible}, its devices are {', '.join(own) or 'CPUs'}"
    compiled = environment.get("PYTHONPYCACHEPREFIX")
    if compiled is not None and not PurePath(compiled).is_relative_to(environment.get("TMPDIR", "/nowhere")):
        yield "PYTHONPYCACHEPREFIX", f"PYTHONPYCACHEPREFIX={compiled}, which is not a folder of the session"
    storage = environment.get(STORAGE_VARIABLE)
    if storage is not None and not _inside(storage, dataroot):
        yield STORAGE_VARIABLE, f"{STORAGE_VARIABLE}={storage}, which is not below the data root {dataroot}"
    if roots:
        yield from _folders(environment, roots)


def _inside(folder: str, root: str) -> bool:
    below = PurePath(os.path.relpath(folder, root)).parts  # by name alone: this node's disk does not matter
    return bool(below) and below[0] != ".."


def _folders(environment: Mapping[str, str], roots: Collection[str]) -> Iterator[tuple[str, str]]:
    home = environment.get("HOME", "")
    places = (*_SYSTEM, *roots, *([home] if _HOME.fullmatch(home) else []))
    for name in _FOLDERS:
        for folder in environment[name].split(":") if name in environment else ():
            path = PurePath(folder)
            if ".." in path.parts or not any(path.is_relative_to(place) for place in places):
                yield folder, f"{name} with the folder {folder or 'that is current'}"


def lacking(mnb: Mnb, *, stores: bool) -> Iterator[str]:
    """The variables that every worker has, and that the record has not got; ``stores``: it writes files."""
    always = (
        "PATH",
        "CUDA_VISIBLE_DEVICES",
        *PINNED,
        "PYTHONPYCACHEPREFIX",
        "TMPDIR",
        *([STORAGE_VARIABLE] if stores else []),
    )
    yield from (name for name in always if name not in mnb.environment)


def of_python(folder: str, root: str) -> bool:
    """Whether a folder of the import path belongs to the Python installation or environment in ``root``."""
    path = PurePath(folder)
    return ".." not in path.parts and path.is_relative_to(root) and bool(_PART.fullmatch(str(path.relative_to(root))))

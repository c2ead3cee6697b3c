"""Chooses a run's devices: the named GPUs, those visible to the caller, or CPU partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Device
from milabench_ng.node.drivers.visibility import asked_for
from milabench_ng.node.gpus import Gpu, NoSuchDevicesError, select
from milabench_ng.run.planning.request import RunRequest

CPU_TENANTS = 2
"""Tenants on a node without a GPU, unless told otherwise."""


class Chosen(msgspec.Struct, frozen=True):
    """The devices of a run."""

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()
    """What the user should know about the choice."""


def choose_devices(gpus: Sequence[Gpu], request: RunRequest, cpus: int, environ: Mapping[str, str]) -> Chosen:
    """The first ``--tenants`` of the GPUs that ``--gpus`` names, else of those that a variable names, else of all.

    If there is none, or the variable hides all, the tenants are CPU partitions, at most ``cpus``, the node's number of
    CPUs. Raises InputError for missing devices and for more tenants than devices; of a resumed run, with what its
    first session asked for, which no option changes.
    """
    by, visible = ("--gpus", None) if request.gpus else asked_for(environ, gpus)
    try:
        return _chosen(gpus, request, cpus, by, visible)
    except NoSuchDevicesError as error:
        if not request.resume or visible is not None:
            raise
        raise InputError(
            f"cannot resume: the run began with {error.asked}. Resume it on a node like its first, or start a new run"
        ) from None


def _chosen(gpus: Sequence[Gpu], request: RunRequest, cpus: int, by: str, visible: str | None) -> Chosen:
    """``by``: the option or variable that names GPUs; ``visible``: the value of the variable."""
    tenants = request.tenants
    if tenants is not None and tenants < 1:
        raise InputError(f"--tenants: expected at least 1, got {tenants}")
    named = request.gpus or _first_names(visible)
    if named and not gpus:
        names = ",".join(named)
        raise NoSuchDevicesError(
            f"{by} {names}: this node has no GPU, or no driver that names one",
            f"Without {by}, tenants are CPU partitions",
        )
    if not gpus:
        return Chosen(_partitions(tenants, cpus))
    if not named and visible is not None:
        return Chosen(_partitions(tenants, cpus), (_hidden(gpus, by, visible),))
    return Chosen(_first(select(gpus, named, by), tenants))


def _first_names(visible: str | None) -> tuple[str, ...]:
    """The names in a variable up to the first invalid one, as CUDA reads it.

    An empty name, a negative number and ``NoDevFiles`` (which Slurm writes for a step without GPUs) end the list.
    """
    names = (name.strip() for name in (visible or "").split(","))
    return tuple(takewhile(lambda name: name and not name.startswith("-") and name != "NoDevFiles", names))


def _hidden(gpus: Sequence[Gpu], variable: str, visible: str) -> str:
    value = f"is {visible!r}" if visible.strip() else "is empty"
    there = "1 GPU found" if len(gpus) == 1 else f"{len(gpus)} GPUs found"
    return (
        f"{there} but none selected, because {variable} {value}. The tenants are CPU partitions. Unset it to "
        "use all GPUs, or name some with --gpus"
    )


def _first(chosen: Sequence[Gpu], tenants: int | None) -> tuple[Device, ...]:
    if tenants is not None and tenants > len(chosen):
        raise NoSuchDevicesError(
            f"--tenants {tenants}: there are only {len(chosen)} GPUs, and each tenant needs one",
            f"Try --tenants {len(chosen)}",
        )
    return tuple(
        Device(
            index=gpu.index,
            kind="mig" if gpu.mig else "gpu",
            uuid=gpu.uuid,
            name=gpu.name,
            numa_node=gpu.numa_node,
            part=gpu.part or msgspec.UNSET,
            capability=gpu.capability or msgspec.UNSET,
            vendor=gpu.vendor,
        )
        for gpu in chosen[:tenants]
    )


def _partitions(tenants: int | None, cpus: int) -> tuple[Device, ...]:
    if (tenants or 1) > cpus:
        raise NoSuchDevicesError(
            f"--tenants {tenants}: this node has only {cpus} CPUs, and each tenant needs one",
            f"Try --tenants {cpus}",
        )
    return tuple(Device(index=index, kind="cpu") for index in range(tenants or min(CPU_TENANTS, cpus)))

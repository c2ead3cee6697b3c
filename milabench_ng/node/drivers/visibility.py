"""The variables that show GPUs to a program, or hide them from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Device, Vendor
from milabench_ng.node.drivers.opening import BACKENDS
from milabench_ng.node.gpus import Gpu


def visible(devices: Sequence[Device], gpus: Iterable[Gpu] = ()) -> dict[str, str]:
    """The variables with which a program sees ``devices`` in this order, and nothing else of the node's ``gpus``.

    Those of NVIDIA are always among them: every record has them, and torch without GPUs looks for them.
    """
    environment: dict[str, str] = {}
    vendors: tuple[Vendor, ...] = ("NVIDIA", *(one.maker for one in devices), *(one.maker for one in gpus))
    for vendor in dict.fromkeys(vendors):
        uuids = [device.uuid for device in devices if device.uuid is not None and device.maker == vendor]
        environment |= BACKENDS[vendor].visible(uuids) if uuids else BACKENDS[vendor].hidden
    return environment


def device_files(devices: Sequence[Device], gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """All files below ``/dev/dri`` that a program needs which uses these devices; empty if that is unknown.

    AMD's GPUs have one each, next to ``/dev/kfd``, which all share (GPU isolation techniques, ROCm documentation).
    """
    nodes = {gpu.uuid: gpu.render_node for gpu in gpus}
    own = [nodes.get(device.uuid or "", msgspec.UNSET) for device in devices]
    known = [f"/dev/dri/{node}" for node in own if node is not msgspec.UNSET]
    return tuple(known) if len(known) == len(own) else ()


def hidden(devices: Sequence[Device]) -> dict[str, str]:
    """The variables with which a program sees no GPU, on a node with ``devices``."""
    environment: dict[str, str] = {}
    for vendor in dict.fromkeys(device.maker for device in devices):
        environment |= BACKENDS[vendor].hidden
    return environment


def asked_for(environ: Mapping[str, str], gpus: Sequence[Gpu]) -> tuple[str, str | None]:
    """The variable by which the caller chose among the node's GPUs, and its value; None if there is none.

    Raises InputError if another one says something else: of AMD's two, the second counts within the first.
    """
    vendors: dict[Vendor, None] = dict.fromkeys(gpu.maker for gpu in gpus) or {"NVIDIA": None}
    variables = [name for vendor in vendors for name in BACKENDS[vendor].variables]
    given = [(name, environ[name]) for name in variables if name in environ]
    if len({value for _, value in given}) > 1:
        said = " and ".join(f"{name}={value}" for name, value in given)
        raise InputError(f"{said} choose different GPUs. Unset all but one, or name GPUs with --gpus")
    return given[0] if given else (variables[0], None)

"""NVIDIA's GPUs, through NVML."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from milabench_ng.model.plan import Vendor
from milabench_ng.node.drivers.interface import Backend, Found
from milabench_ng.node.drivers.nvml.board import NvmlBoard
from milabench_ng.node.drivers.nvml.device_nodes import make_device_nodes
from milabench_ng.node.drivers.nvml.devices import find_devices
from milabench_ng.node.drivers.nvml.meter import BoardMeter, DeviceMeter
from milabench_ng.node.drivers.nvml.session import Session, open_session
from milabench_ng.node.drivers.nvml.xids import XidEvents

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Nvml:
    """The GPUs that an NVML session shows."""

    vendor: Vendor = "NVIDIA"

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def problem(self) -> str | None:
        return self.session.problem

    def version(self) -> str | None:
        version: str | None = self.session.ask("SystemGetDriverVersion")
        return version

    def runtime(self) -> str | None:
        """The newest CUDA that the driver supports."""
        number = self.session.ask("SystemGetCudaDriverVersion")
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def found(self, sysfs: Path) -> Found:
        return find_devices(self.session, sysfs)

    def board(self, uuid: str) -> NvmlBoard:
        return NvmlBoard(self.session.reader(uuid))

    def device_meter(self, uuid: str) -> DeviceMeter:
        return DeviceMeter(self.session.reader(uuid))

    def board_meter(self, uuid: str) -> BoardMeter:
        return BoardMeter(self.session.reader(uuid))

    def faults(self, boards: Collection[str]) -> XidEvents:
        return XidEvents(self.session, boards)

    def close(self) -> None:
        self.session.close()


def open_nvml(module: Any = None) -> Nvml:
    """Open a session, through ``pynvml`` unless another module with its interface is given."""
    return Nvml(open_session(module))


def _visible(uuids: Sequence[str]) -> dict[str, str]:
    return {_VISIBLE: ",".join(uuids)}


NVIDIA = Backend(
    vendor="NVIDIA",
    library="NVML",
    package="nvidia-ml-py",
    open=open_nvml,
    variables=(_VISIBLE,),
    visible=_visible,
    hidden={_VISIBLE: ""},
    make_nodes=make_device_nodes,
    torch_build="cu",
    caveat="",
    whole="Run nvidia-smi -mig 0, then reset the GPUs",
    remedy="Load the NVIDIA driver, create its MIG instances, or look for Xid errors in dmesg",
)

"""AMD's GPUs, through AMD SMI. Its functions and units are from AMD's documents; nothing of it has run on hardware."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from milabench_ng.model.plan import Vendor
from milabench_ng.node.drivers.amd_smi.board import AmdBoard
from milabench_ng.node.drivers.amd_smi.devices import find_devices, read_uuid
from milabench_ng.node.drivers.amd_smi.meter import BoardMeter, DeviceMeter
from milabench_ng.node.drivers.amd_smi.metrics import HeldDown
from milabench_ng.node.drivers.amd_smi.session import GpuReader, Session, open_session
from milabench_ng.node.drivers.interface import Backend, Found


class NoEvents:
    """No faults: AMD SMI tells of errors by its counters only."""

    def drain(self) -> dict[str, tuple[int, ...]]:
        return {}


class AmdSmi:
    """The GPUs that an AMD SMI session shows."""

    vendor: Vendor = "AMD"

    def __init__(self, session: Session) -> None:
        self.session = session
        self._handles: dict[str, Any] = {}
        """By UUID. Two devices with one UUID cannot be told apart, and neither is used."""
        self._unnamed: list[GpuReader] = []
        self._held_down: dict[str, HeldDown] = {}
        named: dict[str, list[Any]] = {}
        for handle in session.handles():
            reader = session.reader(handle)
            uuid = read_uuid(reader)
            if uuid is None:
                self._unnamed.append(reader)
            else:
                named.setdefault(uuid, []).append(handle)
        for uuid, handles in named.items():
            if len(handles) == 1:
                self._handles[uuid] = handles[0]
            else:
                self._unnamed += map(session.reader, handles)

    @property
    def problem(self) -> str | None:
        return self.session.problem

    def version(self) -> str | None:
        told = (self._reader(uuid).ask("version", "gpu_driver_info") for uuid in self._handles)
        return next((answer["driver_version"] for answer in told if answer is not None), None)

    def runtime(self) -> str | None:
        return None

    def found(self, sysfs: Path) -> Found:
        return find_devices({uuid: self._reader(uuid) for uuid in self._handles}, self._unnamed, sysfs)

    def board(self, uuid: str) -> AmdBoard:
        return AmdBoard(self._reader(uuid), self._held(uuid))

    def device_meter(self, uuid: str) -> DeviceMeter:
        return DeviceMeter(self._reader(uuid))

    def board_meter(self, uuid: str) -> BoardMeter:
        return BoardMeter(self._reader(uuid), self._held(uuid))

    def faults(self, boards: Collection[str]) -> NoEvents:  # noqa: ARG002
        return NoEvents()

    def close(self) -> None:
        self.session.close()

    def _reader(self, uuid: str) -> GpuReader:
        return self.session.reader(self._handles[uuid])

    def _held(self, uuid: str) -> HeldDown:
        return self._held_down.setdefault(uuid, HeldDown())


def open_amd_smi(module: Any = None) -> AmdSmi:
    """Open a session, through ``amdsmi`` unless another module with its interface is given."""
    return AmdSmi(open_session(module))


def _visible(uuids: Sequence[str]) -> dict[str, str]:
    """ROCR takes UUIDs and shows only these devices; HIP counts them anew, and takes no UUIDs in older versions."""
    ordinals = ",".join(str(place) for place in range(len(uuids)))
    return {"ROCR_VISIBLE_DEVICES": ",".join(uuids), "HIP_VISIBLE_DEVICES": ordinals}


def _make_nodes() -> None:
    """Nothing: the kernel driver makes its device files when it is loaded."""


AMD = Backend(
    vendor="AMD",
    library="AMD SMI",
    package="amdsmi",
    open=open_amd_smi,
    variables=("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    visible=_visible,
    hidden={"HIP_VISIBLE_DEVICES": "-1"},  # an empty one counts as not set
    make_nodes=_make_nodes,
    torch_build="rocm",
    caveat=" (support for AMD GPUs has not run on hardware)",
    whole="Run amd-smi set --compute-partition SPX",
    remedy="Load the kernel driver amdgpu, or look for amdgpu in dmesg",
)

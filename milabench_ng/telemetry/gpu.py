"""Reads the GPUs' load, memory, temperature, clocks and power from their drivers, by UUID.

A part of a board has its own memory; power, clocks, temperature and energy are those of the GPU it is cut from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milabench_ng.node.drivers.interface import BOARD, OWN
from milabench_ng.node.drivers.opening import Drivers
from milabench_ng.node.gpus import Gpu
from milabench_ng.telemetry.messages import SourceName


class GpuSource:
    """The devices that the drivers show."""

    name: SourceName = "gpu"
    values = (*OWN, *BOARD, "read_errors")

    def __init__(self, drivers: Drivers, devices: Sequence[Gpu]) -> None:
        boards = {gpu.board: gpu for gpu in devices}
        self._boards = {uuid: drivers.of(gpu).board_meter(uuid) for uuid, gpu in boards.items()}
        self._devices = {gpu.uuid: (drivers.of(gpu).device_meter(gpu.uuid), gpu.board) for gpu in devices}
        self.keys = tuple(gpu.uuid for gpu in devices)
        self.notes = tuple(drivers.problems.values())
        meters = [*self._boards.values(), *(meter for meter, _ in self._devices.values())]
        self.unsupported = tuple(sorted({name for meter in meters for name in meter.unsupported}))

    def read(self) -> Iterator[tuple[str, dict[str, float]]]:
        """The values of every device. ``read_errors`` counts supported values that failed at this read."""
        boards = {uuid: meter.read() for uuid, meter in self._boards.items()}
        for uuid, (meter, board) in self._devices.items():
            values = {**meter.read(), **boards[board]}
            given = {name: float(value) for name, value in values.items() if value is not None}
            yield uuid, {**given, "read_errors": float(len(values) - len(given))}

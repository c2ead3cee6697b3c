"""What the driver of each vendor's GPUs offers. A vendor is one file in this folder, and one line in `opening`.

Names and units of readings are the same for all vendors. What a device cannot tell is None, and ``unsupported`` has its
name, so that nobody takes it for a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from milabench_ng.model.plan import Vendor
from milabench_ng.node.gpu_conditions import GpuSettings, GpuState
from milabench_ng.node.gpus import Gpu

OWN = ("memory_used_mib", "utilization_pct")
"""What is sampled of a device itself, which may be a part of a board."""
BOARD = (
    *("temperature_c", "power_w", "energy_j", "sm_clock_mhz", "memory_clock_mhz", "pcie_generation", "pcie_width"),
    *("sw_power_cap_s", "sw_thermal_s", "hw_thermal_s", "hw_power_brake_s", "memory_temperature_c"),
    *("reason_idle", "reason_sw_power_cap", "reason_hw_slowdown"),
    *("reason_sw_thermal", "reason_hw_thermal", "reason_hw_power_brake"),
)
"""What is sampled of the board that carries it. A reason is 0 or 1, so that its mean is a fraction of the samples."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one vendor."""

    devices: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()
    """GPUs that exist but cannot be used, and why."""


class Board(Protocol):
    """Reads the settings and the state of one physical GPU."""

    unsupported: set[str]
    """Names of values unavailable with this GPU, driver or permission."""
    errors: dict[str, str]
    """Other failures, such as a lost GPU, by name of the value."""

    def settings(self, gpu: Gpu) -> GpuSettings:
        """Its settings; ``gpu`` is a device on it."""

    def state(self, own_pids: Collection[int]) -> GpuState:
        """Power, energy, clocks, what holds them down, errors, links and processes other than ``own_pids``."""


class Meter(Protocol):
    """Samples a device or a board several times a second: it asks only for what answered at the start."""

    unsupported: set[str]

    def read(self) -> Mapping[str, float | None]:
        """The supported values; None for one that failed this time."""


class FaultEvents(Protocol):
    """What a driver reports of its own accord."""

    def drain(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the faults since the last call, by UUID of the physical GPU, without waiting."""


class GpuDriver(Protocol):
    """A session with the library of a driver."""

    @property
    def vendor(self) -> Vendor: ...

    @property
    def problem(self) -> str | None:
        """Why there is no session, if there should be one."""

    def version(self) -> str | None:
        """The version of the driver."""

    def runtime(self) -> str | None:
        """The newest version of the vendor's runtime that the driver supports, if it tells."""

    def found(self, sysfs: Path) -> Found:
        """All devices that it shows. A board that is cut into parts is replaced by them."""

    def board(self, uuid: str) -> Board:
        """The reader of a physical GPU."""

    def device_meter(self, uuid: str) -> Meter:
        """A meter of `OWN` of a device."""

    def board_meter(self, uuid: str) -> Meter:
        """A meter of `BOARD` of a physical GPU."""

    def faults(self, boards: Collection[str]) -> FaultEvents:
        """The faults of these physical GPUs."""

    def close(self) -> None:
        """End the session; the library stays loaded."""


class Backend(NamedTuple):
    """What is known of a vendor without a session."""

    vendor: Vendor
    library: str
    """What its users call the library."""
    package: str
    """Whose version it is: the bindings to the library."""
    open: Callable[[], GpuDriver]
    variables: tuple[str, ...]
    """The variables that hide GPUs from programs; the first that is set counts."""
    visible: Callable[[Sequence[str]], dict[str, str]]
    """The variables that show a program only the devices with these UUIDs, in this order."""
    hidden: Mapping[str, str]
    """The variables that hide all."""
    make_nodes: Callable[[], None]
    """Makes device files before tenants need them, who may not gain the rights to do it."""
    torch_build: str
    """How the local part of torch's version begins if it is built for these GPUs, as in ``2.11.0+cu130``."""
    caveat: str
    """What to say wherever its devices are shown."""
    whole: str
    """What to do about a GPU that is cut into parts, if it should be whole."""
    remedy: str
    """What to do about a GPU on the PCI bus that it does not show."""

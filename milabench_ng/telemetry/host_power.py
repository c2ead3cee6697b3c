"""Reads what the host draws: the processors by RAPL (Documentation/power/powercap), the whole node by its own meter.

A node has a meter that can be read here if the kernel shows one (hwmon's ``power_meter``, of ACPI), or ``ipmitool`` and
the device of its management controller are there. RAPL is for root only, on most kernels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from milabench_ng.node.held_file import HeldFile
from milabench_ng.node.kernel_files import kernel_text

IPMI_EVERY_S = 2.0
"""Time between two readings through the management controller, which takes a tenth of a second or more for each."""
LONGEST_GAP_S = 10.0
"""Between readings of a meter that are further apart, its energy is not known."""
DCMI = ("ipmitool", "dcmi", "power", "reading")
_DCMI_WATTS = re.compile(rb"Instantaneous power reading:\s+(\d+) Watts")


class Rapl:
    """The energy counters of the processor packages, which start again at 0 every few minutes."""

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        zones = sorted(sysfs.glob("class/powercap/intel-rapl:*"))
        packages = [zone for zone in zones if (kernel_text(zone / "name") or "").startswith("package")]
        self._counters = [HeldFile(zone / "energy_uj") for zone in packages]
        self._ranges = [int(kernel_text(zone / "max_energy_range_uj") or 0) for zone in packages]
        self._last = _numbers(self._counters)
        self._microjoules = 0

    @property
    def works(self) -> bool:
        """Whether there are packages, and all can be read."""
        return bool(self._last)

    def joules(self) -> float | None:
        """What all packages used since this object was made; None if that is not known. Read it every minute."""
        now = _numbers(self._counters)
        if not self._last or not now:
            self._last = ()
            return None
        for before, after, most in zip(self._last, now, self._ranges, strict=True):
            self._microjoules += after - before if after >= before else after - before + most
        self._last = now
        return self._microjoules / 1e6


class Meter(Protocol):
    """What the whole node draws."""

    def watts(self) -> float | None:
        """The newest reading; None without one. Does not wait."""


class HwmonMeter:
    """A meter that the kernel shows."""

    def __init__(self, folder: Path) -> None:
        self._file = HeldFile(folder / "power1_average")

    def watts(self) -> float | None:
        """The average over the meter's own interval."""
        found = _numbers([self._file])
        return found[0] / 1e6 if found else None


class IpmiMeter:
    """The management controller's, asked by ``ipmitool`` in the background; no more once it has failed."""

    def __init__(self, command: Sequence[str] = DCMI) -> None:
        self._command = command
        self._asking: subprocess.Popen[bytes] | None = None
        self._asked_s = -IPMI_EVERY_S
        self._watts: float | None = None
        self.failed = False
        """Whether it gave no answer."""

    def watts(self) -> float | None:
        """The last reading that has arrived."""
        if self._asking is not None and self._asking.poll() is not None:
            told = _DCMI_WATTS.search(self._asking.communicate()[0])
            self._watts = float(told[1]) if told and self._asking.returncode == 0 else None
            self.failed = self._watts is None
            self._asking = None
        now_s = time.monotonic()
        if self._asking is None and not self.failed and now_s - self._asked_s >= IPMI_EVERY_S:
            self._asked_s = now_s
            self._asking = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._watts


class MeteredEnergy:
    """The energy that a meter of power shows, as the area below its readings."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._last: tuple[float, float] | None = None
        self._joules = 0.0

    def read(self, now_s: float) -> tuple[float, float] | None:
        """Watts now, and joules since the first reading; None without a reading."""
        watts = self._meter.watts()
        if watts is None:
            return None
        if self._last is not None and now_s - self._last[0] <= LONGEST_GAP_S:
            self._joules += (now_s - self._last[0]) * (watts + self._last[1]) / 2
        self._last = (now_s, watts)
        return watts, self._joules


def find_meter(sysfs: Path = Path("/sys"), devices: Path = Path("/dev")) -> Meter | None:
    """The node's own meter, if one can be read without new rights."""
    shown = [path.parent for path in sorted(sysfs.glob("class/hwmon/hwmon*/name"))]
    for folder in shown:
        if kernel_text(folder / "name") == "power_meter" and (folder / "power1_average").exists():
            return HwmonMeter(folder)
    if shutil.which(DCMI[0]) and os.access(devices / "ipmi0", os.R_OK | os.W_OK):
        return IpmiMeter()
    return None


def is_metered(sysfs: Path = Path("/sys")) -> bool:
    """Whether anything tells what the host draws."""
    return Rapl(sysfs).works or find_meter(sysfs) is not None


def _numbers(files: Sequence[HeldFile]) -> tuple[int, ...]:
    """The numbers in files; none if one of them cannot be read."""
    try:
        return tuple(int(file.read()) for file in files)
    except (OSError, ValueError):
        return ()

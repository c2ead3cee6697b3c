"""Energy of processors and node, by files and programs that a test makes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from milabench_ng.telemetry.host import HostSource
from milabench_ng.telemetry.host_power import HwmonMeter, IpmiMeter, MeteredEnergy, Rapl, find_meter, is_metered


class Steps:
    """A meter that shows these watts, one after another."""

    def __init__(self, *watts: float | None) -> None:
        self._watts = list(watts)

    def watts(self) -> float | None:
        return self._watts.pop(0)


def package(sysfs: Path, number: int, microjoules: int, name: str = "package", most: int = 1_000_000) -> Path:
    zone = sysfs / f"class/powercap/intel-rapl:{number}"
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "name").write_text(f"{name}-{number}\n")
    (zone / "max_energy_range_uj").write_text(f"{most}\n")
    (zone / "energy_uj").write_text(f"{microjoules}\n")
    return zone


def hwmon(sysfs: Path, microwatts: int) -> Path:
    folder = sysfs / "class/hwmon/hwmon3"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text("power_meter\n")
    (folder / "power1_average").write_text(f"{microwatts}\n")
    return folder


def test_packages_are_added_up_also_when_their_counters_begin_again(tmp_path: Path) -> None:
    package(tmp_path, 0, 900_000)
    package(tmp_path, 1, 100)
    package(tmp_path, 2, 5, name="dram")
    rapl = Rapl(tmp_path)
    assert rapl.works
    package(tmp_path, 0, 150_000)  # 100,000 to its end at 1,000,000, and 150,000 from 0
    package(tmp_path, 1, 50_100)
    package(tmp_path, 2, 999_999, name="dram")
    assert rapl.joules() == pytest.approx((100_000 + 150_000 + 50_000) / 1e6)
    package(tmp_path, 1, 60_100)
    assert rapl.joules() == pytest.approx(0.31)


def test_without_packages_or_the_right_to_read_them_nothing_is_known(tmp_path: Path) -> None:
    assert (Rapl(tmp_path).works, Rapl(tmp_path).joules()) == (False, None)
    zone = package(tmp_path, 0, 1)
    (zone / "energy_uj").unlink()  # as for everybody but root
    assert (Rapl(tmp_path).works, Rapl(tmp_path).joules()) == (False, None)
    assert not is_metered(tmp_path)


def test_the_kernels_meter_is_preferred_and_told_in_watts(tmp_path: Path) -> None:
    assert find_meter(tmp_path, tmp_path) is None
    hwmon(tmp_path, 812_500_000)
    meter = find_meter(tmp_path, tmp_path)
    assert isinstance(meter, HwmonMeter)
    assert meter.watts() == 812.5
    assert is_metered(tmp_path)


def test_the_energy_of_a_meter_is_the_area_below_its_readings() -> None:
    metered = MeteredEnergy(Steps(None, 100.0, 300.0, 300.0, 500.0))
    assert metered.read(0.0) is None
    assert metered.read(1.0) == (100.0, 0.0)
    assert metered.read(2.0) == (300.0, 200.0)
    assert metered.read(4.0) == (300.0, 800.0)
    assert metered.read(60.0) == (500.0, 800.0)  # nobody knows what was drawn meanwhile


def answer(meter: IpmiMeter) -> float | None:
    """Its first reading, or None if it gives none."""
    end_s = time.monotonic() + 20
    while (watts := meter.watts()) is None and not meter.failed and time.monotonic() < end_s:
        time.sleep(0.01)
    return watts


def test_the_management_controller_is_asked_in_the_background() -> None:
    told = "    Instantaneous power reading:                   1234 Watts\\n    Minimum: 5 Watts\\n"
    meter = IpmiMeter((sys.executable, "-c", f"print('{told}')"))
    assert meter.watts() is None
    assert answer(meter) == 1234.0


@pytest.mark.parametrize("code", ["print('Instantaneous power reading: 9 Watts'); raise SystemExit(1)", "print('no')"])
def test_a_controller_that_does_not_answer_is_not_asked_again(code: str) -> None:
    meter = IpmiMeter((sys.executable, "-c", code))
    assert answer(meter) is None
    assert meter.failed


def test_the_host_tells_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 1 1 1 1 1 1 1 0 0\n")
    (tmp_path / "meminfo").write_text("MemAvailable: 1024 kB\n")
    package(tmp_path, 0, 0)
    source = HostSource(procfs=tmp_path, sysfs=tmp_path, devices=tmp_path)
    assert source.unsupported == ("wall_w", "wall_energy_j")
    package(tmp_path, 0, 500_000)
    ((_, values),) = source.read()
    assert values["cpu_energy_j"] == 0.5
    assert not {"wall_w", "wall_energy_j"} & values.keys()
    hwmon(tmp_path, 10_000_000)
    ((_, values),) = HostSource(procfs=tmp_path, sysfs=tmp_path, devices=tmp_path).read()
    assert (values["wall_w"], values["wall_energy_j"]) == (10.0, 0.0)

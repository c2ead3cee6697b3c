"""The host pace by hand: medians over bursts and CPUs, and when it has moved."""

from __future__ import annotations

import msgspec
import pytest

from milabench_ng.records.host_pace import CpuPace, HostPace, moved, pace_of


def pace(*bursts: float) -> HostPace:
    """Of one CPU."""
    return pace_of((4,), [{4: CpuPace(value, 1.0)} for value in bursts], "zlib 1")


def test_medians_over_the_cpus_of_the_share_and_over_bursts() -> None:
    bursts = [
        {0: CpuPace(80.0, 1.0), 1: CpuPace(60.0, 0.5), 2: CpuPace(70.0, 1.0), 3: CpuPace(1.0, 0.1)},
        {0: CpuPace(82.0, 1.0), 1: CpuPace(66.0, 1.0), 2: CpuPace(40.0, 1.0), 3: CpuPace(1.0, 0.1)},
        {0: CpuPace(81.0, 0.9), 1: CpuPace(62.0, 1.0), 2: CpuPace(71.0, 1.0), 3: CpuPace(1.0, 0.1)},
    ]
    found = pace_of((0, 1, 2), bursts, "zlib 1")
    assert found == HostPace(
        library="zlib 1",
        mb_per_s=70.0,  # of 70, 66 and 71
        bursts=(70.0, 66.0, 71.0),
        cpu_min=62.0,  # CPU 1: 60, 66, 62
        cpu_max=81.0,  # CPU 0: 80, 82, 81
        slowest_cpu=1,
        on_cpu=1.0,
    )
    assert pace_of((3,), bursts, "zlib 1").mb_per_s == 1.0


def test_one_burst_that_a_neighbour_spoils_does_not_count() -> None:
    assert pace(80, 80, 12, 80, 80).mb_per_s == 80


@pytest.mark.parametrize(
    ("after", "change"),
    [
        pytest.param((90, 90, 91, 90, 90), -0.1, id="a tenth slower"),
        pytest.param((110, 110, 111, 109, 110), 0.1, id="a tenth faster"),
        pytest.param((96, 96, 96, 96, 96), None, id="within the limit"),
        pytest.param((94, 94, 94, 94, 94), -0.06, id="beyond the limit"),
        pytest.param((90, 90, 100, 90, 90), None, id="one burst as fast as before: it may be chance"),
    ],
)
def test_moved(after: tuple[float, ...], change: float | None) -> None:
    assert moved(pace(100, 100, 101, 99, 100), pace(*after)) == (None if change is None else pytest.approx(change))


def test_what_was_not_measured_has_not_moved() -> None:
    unknown = HostPace(problem="CPU 7 may not be used by this process: Invalid argument")
    assert moved(unknown, pace(80.0)) is None
    assert moved(pace(80.0), unknown) is None
    assert moved(pace(0.0), pace(80.0)) is None


def test_it_survives_its_file() -> None:
    for made in (pace(80.0, 81.0), HostPace(problem="why")):
        assert msgspec.json.decode(msgspec.json.encode(made), type=HostPace) == made

"""What a node draws before it works, by hand."""

from __future__ import annotations

import msgspec
import pytest

from milabench_ng.node.conditions import read_conditions
from milabench_ng.node.drivers.opening import open_drivers
from milabench_ng.records.manifest import IdlePower
from milabench_ng.run.execution.sampling import idle_power, with_energy
from milabench_ng.telemetry.messages import HOST_KEY, Sample
from milabench_ng.telemetry.recorder import Recorder


def recorder(gpu: dict[str, float], host: dict[str, float]) -> Recorder:
    """Ten samples in five seconds; a value that ends in ``_j`` is watts of its counter."""
    filled = Recorder()
    for step in range(11):
        for source, key, values in (("gpu", "GPU-0", gpu), ("host", HOST_KEY, host)):
            now = {name: each * step / 2 if name.endswith("_j") else each for name, each in values.items()}
            filled.feed(Sample(time_s=step / 2, source=source, key=key, values=now))  # type: ignore[arg-type]
    return filled


def test_counters_come_before_samples() -> None:
    filled = recorder(
        {"energy_j": 70.0, "power_w": 75.0}, {"cpu_energy_j": 120.0, "wall_w": 400.0, "wall_energy_j": 1.0}
    )
    assert idle_power(filled, ["GPU-0", "GPU-gone"], 0.75, 4.75) == IdlePower(
        seconds=4.0, gpus_w={"GPU-0": pytest.approx(70.0)}, cpu_w=pytest.approx(120.0), wall_w=400.0
    )


def test_a_gpu_without_a_counter_has_the_mean_of_its_samples() -> None:
    assert idle_power(recorder({"power_w": 75.0}, {"load_1min": 1.0}), ["GPU-0"], 1.0, 5.0) == IdlePower(
        seconds=4.0, gpus_w={"GPU-0": 75.0}
    )


def test_what_nothing_tells_is_omitted() -> None:
    assert idle_power(recorder({"utilization_pct": 0.0}, {"load_1min": 1.0}), ["GPU-0"], 1.0, 5.0) is msgspec.UNSET


def test_conditions_get_the_energy_of_the_last_sample() -> None:
    with open_drivers() as drivers:
        bare = read_conditions(drivers, ())
    found = with_energy(bare, {"cpu_energy_j": 12.5, "load_1min": 1.0})
    assert (found.host.cpu_energy_j, found.host.wall_energy_j) == (12.5, msgspec.UNSET)
    assert found.utc == bare.utc

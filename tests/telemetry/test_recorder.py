"""What the recorder makes of samples, by hand."""

from __future__ import annotations

import pytest

from milabench_ng.model.bounds import Spread
from milabench_ng.records.record import Gauge
from milabench_ng.telemetry.messages import Dropped, Sample, Supported
from milabench_ng.telemetry.recorder import Recorder

UUID = "GPU-aa11"


def gpu_sample(time_s: float, **values: float) -> Sample:
    return Sample(time_s=time_s, source="gpu", key=UUID, values=values)


def recorder() -> Recorder:
    filled = Recorder()
    for time_s, busy, used in ((9.9, 100, 999), (10.0, 20, 100), (10.5, 40, 400), (11.0, 90, 100), (11.1, 0, 0)):
        filled.feed(gpu_sample(time_s, utilization_pct=busy, memory_used_mib=used))
    filled.feed(Sample(time_s=10.5, source="tenant", key=UUID, values={"memory_used_mib": 5}))
    return filled


def test_spreads_are_of_the_samples_inside_both_ends_included() -> None:
    assert recorder().spreads("gpu", UUID, 10.0, 11.0) == {
        "utilization_pct": Spread(3, 20, 50, 90, 1.0),
        "memory_used_mib": Spread(3, 100, 200, 400, 1.0),
    }


def test_a_counter_is_read_at_the_edges_between_the_samples_around_them() -> None:
    """100 J a second, then 700: 10.2 s is at 10 + 0.4 of a half second, 11.9 s at 11.5 + 0.8 of one."""
    filled = Recorder()
    for time_s, joules in ((10.0, 1000), (10.5, 1050), (11.0, 1400), (11.5, 1750), (12.0, 2100)):
        filled.feed(gpu_sample(time_s, energy_j=joules, power_w=1))
    found = filled.spreads("gpu", UUID, 10.2, 11.9)["energy_j"]
    assert (found.n, found.span_s) == (3, pytest.approx(1.7))
    assert (found.min, found.max) == (pytest.approx(1020), pytest.approx(2030))
    assert filled.spreads("gpu", UUID, 10.2, 11.9)["power_w"] == Spread(3, 1, 1, 1, 1.0)
    assert filled.spreads("gpu", UUID, 10.0, 12.0)["energy_j"] == Spread(5, 1000, 1460, 2100, 2.0)


def test_a_counter_without_samples_around_the_edges_is_that_of_the_samples_inside() -> None:
    filled = Recorder()
    for time_s, joules in ((10.0, 1000), (12.5, 1050), (13.0, 1400), (13.5, 1750), (14.0, 2100)):
        filled.feed(gpu_sample(time_s, energy_j=joules))
    inside = Spread(3, 1050, 1400, 1750, 1.0)
    assert filled.spreads("gpu", UUID, 12.0, 13.7)["energy_j"] == inside  # 2.5 s without a sample
    assert filled.spreads("gpu", UUID, 12.5, 15.0)["energy_j"] == Spread(4, 1050, 1575, 2100, 1.5)


def test_a_value_that_was_read_once_counts_once() -> None:
    filled = recorder()
    filled.feed(gpu_sample(12.0, utilization_pct=10, energy_j=7))
    filled.feed(gpu_sample(12.5, utilization_pct=30))
    assert filled.spreads("gpu", UUID, 12.0, 13.0) == {
        "utilization_pct": Spread(2, 10, 20, 30, 0.5),
        "energy_j": Spread(1, 7, 7, 7, 0.0),
    }


def test_the_load_of_a_gpu_over_time_is_a_fraction() -> None:
    assert recorder().gpu_load([UUID, "GPU-none"], 10.0, 11.0) == {UUID: [(10.0, 0.2), (10.5, 0.4), (11.0, 0.9)]}
    silent = Recorder()
    silent.feed(gpu_sample(10.0, memory_used_mib=1))  # as a MIG instance, whose driver tells no utilisation
    assert silent.gpu_load([UUID], 10.0, 11.0) == {}


def test_gpu_monitor_has_the_shape_of_2020() -> None:
    none = Gauge(-1, -1, -1)
    assert recorder().gpu_monitor({"0": UUID, "1": "GPU-none", "2": None}, 10.0, 11.0) == {
        "0": {
            "load": Gauge(0.2, 0.5, 0.9),
            "memory": Gauge(100, 200, 400),
            "temperature": none,
        },
        "1": {"load": none, "memory": none, "temperature": none},
        "2": {"load": none, "memory": none, "temperature": none},
    }


def test_telemetry_names_source_and_key() -> None:
    keys = (("tenant", UUID), ("host", "node"))
    assert recorder().telemetry(keys, 0.0, 99.0) == {
        f"tenant:{UUID}": {"memory_used_mib": Spread(1, 5, 5, 5, 0.0)},
        "host:node": {},
    }


def test_the_oldest_samples_go_first() -> None:
    small = Recorder(samples_per_key=2)
    for second in range(5):
        small.feed(gpu_sample(float(second), power_w=second))
    # Two are always kept; two more were thrown away when the fifth found the room for four full.
    assert small.spreads("gpu", UUID, 0.0, 9.0) == {"power_w": Spread(3, 2, 3, 4, 2.0)}


def test_what_the_sampler_says_of_itself_is_kept() -> None:
    told = Recorder()
    supported = Supported(time_s=1.0, interval_s=0.5, keys={}, values={}, unsupported={})
    told.feed(supported)
    assert told.supported == supported


def test_lost_samples_are_counted_for_the_time_in_which_they_were_lost() -> None:
    told = Recorder()
    for since_s, time_s, count in ((2.0, 3.5, 12), (20.0, 20.5, 4)):
        told.feed(Dropped(time_s=time_s, since_s=since_s, count=count))
    assert [told.dropped(*span) for span in ((0, 1.9), (0, 2), (3, 10), (4, 19), (0, 30))] == [0, 12, 12, 0, 16]

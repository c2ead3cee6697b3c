"""The script that compares the meters of a GPU: its figures, by hand."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from milabench_ng.telemetry.messages import Sample
from milabench_ng.telemetry.recorder import Recorder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("bench_energy", str(ROOT / "scripts" / "bench-energy"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    return made


def burning(**scales: float) -> Recorder:
    """600 W for 60 s, as the counter has it; ``scales``: what of it each quantity shows."""
    recorder = Recorder()
    for step in range(121):
        values = {"energy_j": 300.0 * step, "power_w": 600.0}
        shown = {name: value * scales[name] for name, value in values.items() if name in scales}
        recorder.feed(Sample(time_s=step / 2, source="gpu", key="GPU-0", values=shown))
    return recorder


def test_counter_and_samples_are_compared_over_the_same_time(script: ModuleType) -> None:
    """From 2.25 s to 57.75 s are 55.5 s: 33,300 J by the counter, 33,633 J by samples that show 1% more."""
    told = script.compare_meters(burning(energy_j=1.0, power_w=1.01), "GPU-0", 2.25, 57.75)
    assert told == ("55.5 s: counter 33300 J, 111 samples of the power 33633 J, samples over counter 1.0100")


def test_a_gpu_that_tells_only_one_of_them_says_which(script: ModuleType) -> None:
    assert script.compare_meters(burning(power_w=1.0), "GPU-0", 2.0, 58.0) == "this GPU does not tell its energy"
    assert script.compare_meters(burning(energy_j=1.0), "GPU-0", 2.0, 58.0) == "this GPU does not tell its power"


def test_the_series_of_a_burn_have_a_size(script: ModuleType) -> None:
    assert 100 < script.series_bytes(burning(energy_j=1.0, power_w=1.0), "GPU-0", 0.0, 60.0) < 20_000

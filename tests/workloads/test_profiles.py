"""Every shipped profile names real workloads with real options, and its weights name its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench_ng.catalogue import Catalogue, resolve
from milabench_ng.memory_classes import DeviceMemory, choose_entries
from milabench_ng.profile import Test, build_profile, parse_profile
from milabench_ng.report.scoring.weights import load_weights
from milabench_ng.report.summary.folder import load_baseline
from milabench_ng.units import GIB
from milabench_ng.worker.discovery import describe

ROOT = Path(__file__).parents[2]
NAMES_2020 = [
    *("toy_reg", "toy_lstm", "vae", "loader", "reso", "translator", "wlm", "wlmfp16", "cart", "minigrid", "atari"),
    *("ssd", "fast_style", "dcgan", "convnet", "convnet_fp16", "recom", "scaling"),
]
FIELD_SUITES = ("cv", "interference", "interference-quick", "io", "lambda", "mixed", "modern", "unet3d")
"""Suites other than that of 2020, whose scores rest on a reference, not on the weights of 2020."""
SIZES_GIB = (8, 11, 16, 24, 32, 40, 48, 80, 96, 140, 192)
"""The memory classes of Lambda's table."""
MEMORIES = (None, *(DeviceMemory(device="GPU 0", bytes=size * GIB) for size in SIZES_GIB))
LARGE = tuple(memory for memory in MEMORIES if memory is None or (memory.bytes or 0) >= 24 * GIB)
"""Those of the modern suite, whose models need 22 GiB."""
PROFILES = sorted(path.stem for path in (ROOT / "profiles").glob("*.json"))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return describe(())


def entries_of(name: str) -> dict[str, Test]:
    text = (ROOT / "profiles" / f"{name}.json").read_text()
    return build_profile(name, parse_profile(text, name)[0], text, name).tests


@pytest.mark.parametrize("name", PROFILES)
def test_workloads_and_options_exist(name: str, catalogue: Catalogue) -> None:
    for test, entry in entries_of(name).items():
        workload = catalogue.workload(entry.workload, f"{name}.{test}")
        for memory in MEMORIES if name != "modern" else LARGE:
            arguments, _ = choose_entries(entry.arguments, memory, f"{name}.{test}")
            resolve(workload.options, arguments, f"{name}.{test}")
        assert (entry.partition_scheme.type == "gpu-progression") == (entry.workload == "scaling")


@pytest.mark.parametrize("name", [name for name in PROFILES if name not in FIELD_SUITES])
def test_the_weights_are_those_of_2020(name: str) -> None:
    weights = load_weights(ROOT / "weights" / f"{name}.json", name)
    standard = load_weights(ROOT / "weights" / "standard.json", "standard")
    assert weights is not None
    assert standard is not None
    labels = {f"{name}.{test}" for test in entries_of(name) if test != "scaling"}
    steps = {f"{name}.scaling.{step}" for step in range(1, 9)} if "scaling" in entries_of(name) else set()
    assert set(weights) == labels | steps
    for label, weight in weights.items():
        assert weight == standard[label.replace(name, "standard", 1)]


def test_the_standard_suite_has_the_eighteen_tests_and_weights_of_2020() -> None:
    assert list(entries_of("standard")) == NAMES_2020
    assert list(entries_of("lite")) == NAMES_2020
    assert list(entries_of("smoke")) == NAMES_2020
    for name in ("standard-10gb", "standard-5gb"):
        assert list(entries_of(name)) == NAMES_2020[:-1]
    weights = load_weights(ROOT / "weights" / "standard.json", "standard")
    assert weights is not None
    assert sum(weights.values()) == 140


def test_smoke_touches_every_workload_of_the_standard_suite(catalogue: Catalogue) -> None:
    standard = {
        name for name, one in catalogue.workloads.items() if one.origin.startswith("milabench_ng.workloads.standard")
    }
    assert {entry.workload for entry in entries_of("smoke").values()} == standard


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "baselines").glob("*.json")))
def test_the_shipped_baselines_count_what_the_workloads_count(name: str, catalogue: Catalogue) -> None:
    """`scripts/baselines-2020` takes the words from there; a unit in other words would suppress the ratio."""
    baseline = load_baseline(name)
    workloads = {test: catalogue.workload(entry.workload, test) for test, entry in entries_of(baseline.suite).items()}
    rows = baseline.tests
    assert {label.split(".")[1] for label in rows} <= set(workloads)  # what cannot be estimated is left out
    for label, row in rows.items():
        workload = workloads[label.split(".")[1]]
        assert (row.unit, row.classic_factor) == (workload.unit, workload.classic_factor), label

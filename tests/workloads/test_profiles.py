"""Every shipped profile names real workloads with real options, and its weights name its tests."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest
from field_cases.shapes import LLAMA_1B, LLAMA_8B, LLAMA_70B, ROUTED_21B
from msgspec.structs import replace

from milabench_ng.analysis.scoring.weights import read_weights
from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.datasets.tables.clicks import FEATURES
from milabench_ng.model.catalogue import Catalogue, resolve
from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import DeviceMemory, choose_entries
from milabench_ng.model.plan import Device, ResolvedOptions
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import Profile, Test, read_profile
from milabench_ng.model.units import GIB, parse_bytes
from milabench_ng.worker.discovery import describe
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.narrow_layers import LEAST_CAPABILITY
from milabench_ng.workloads.models.paged_generator import paged_bytes
from milabench_ng.workloads.modern.dlrm import equal_shares
from milabench_ng.workloads.modern.hstu import hstu
from milabench_ng.workloads.modern.llm_serve import WORKSPACE
from milabench_ng.workloads.modern.llm_speculate import PAGE
from milabench_ng.workloads.modern.serving import Mix, pages_for

ROOT = Path(__file__).parents[2]
NAMES_2020 = [
    *("toy_reg", "toy_lstm", "vae", "loader", "reso", "translator", "wlm", "wlmfp16", "cart", "minigrid", "atari"),
    *("ssd", "fast_style", "dcgan", "convnet", "convnet_fp16", "recom", "scaling"),
]
SUITES_2020 = ("lite", "quick", "smoke", "standard", "standard-10gb", "standard-5gb")
"""Those whose scores rest on the weights of 2020; those of others rest on a reference."""
SIZES_GIB = (8, 11, 16, 24, 32, 40, 48, 80, 96, 140, 192, 288)
"""The memory classes of Lambda's table, and that of the largest GPUs."""
MEMORIES = (None, *(DeviceMemory(device="GPU 0", bytes=size * GIB) for size in SIZES_GIB))
LARGE = tuple(memory for memory in MEMORIES if memory is None or (memory.bytes or 0) >= 24 * GIB)
"""Those of the modern suite, whose models need 22 GiB."""
PROFILES = sorted(path.stem for path in (ROOT / "profiles").glob("*.json"))


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return describe(())


def entries_of(name: str) -> dict[str, Test]:
    return read_profile(ROOT / "profiles" / f"{name}.json").tests


@pytest.mark.parametrize("name", PROFILES)
def test_workloads_and_options_exist(name: str, catalogue: Catalogue) -> None:
    for test, entry in entries_of(name).items():
        workload = catalogue.workload(entry.workload, f"{name}.{test}")
        for memory in LARGE if name in ("modern", "modern2", "procurement", "frontier") else MEMORIES:
            arguments, _ = choose_entries(entry.arguments, memory, f"{name}.{test}")
            resolve(workload.options, arguments, f"{name}.{test}")
        assert (entry.partition_scheme.type == "gpu-progression") == (entry.workload == "scaling")


@pytest.mark.parametrize("name", SUITES_2020)
def test_the_weights_are_those_of_2020(name: str) -> None:
    weights = read_weights(ROOT / "weights" / f"{name}.json", name).weights
    standard = read_weights(ROOT / "weights" / "standard.json", "standard").weights
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
    weights = read_weights(ROOT / "weights" / "standard.json", "standard").weights
    assert sum(weights.values()) == 140


ALIKE = ("workload", "partition_scheme", "least_devices", "device_counts", "least_capability")
SWEEPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


def test_procurement_is_standard_and_modern2() -> None:
    whole = entries_of("procurement")
    for suite in ("standard", "modern2"):
        assert {
            name: msgspec.structs.replace(test, suite=None) for name, test in whole.items() if test.suite == suite
        } == (entries_of(suite))
    assert {test.suite for test in whole.values()} == {"standard", "modern2"}


def test_modern_lite_has_the_work_of_modern2_in_its_precision() -> None:
    lite, modern = entries_of("modern-lite"), entries_of("modern2")
    assert [name for name, test in modern.items() if test.instead_of is None] == [*lite]
    for name, entry in lite.items():
        whole = modern[name]
        assert {key: getattr(entry, key) for key in ALIKE} == {key: getattr(whole, key) for key in ALIKE}, name
        for key in ("precision", "numbers", "compile", "blockwise", "share_texts", "operation"):
            assert entry.arguments.get(key) == whole.arguments.get(key), f"{name}: {key}"


def test_dlrm_is_planned_where_its_tables_divide() -> None:
    def divides(devices: int) -> bool:
        try:
            equal_shares(tables=FEATURES, devices=devices)
        except InputError:
            return False
        return True

    assert entries_of("modern")["dlrm"].device_counts == tuple(filter(divides, range(1, FEATURES + 1)))


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_modern_lite_is_planned_on_small_gpus_and_on_none(devices: int, catalogue: Catalogue) -> None:
    profile = read_profile(ROOT / "profiles" / "modern-lite.json")
    for memory in (None, *(DeviceMemory("device 0 (small)", size * 10**9) for size in (8, 11, 16, 24))):
        options = {}
        for name, entry in profile.tests.items():
            values, classes = choose_entries(entry.arguments, memory, name)
            known = catalogue.workload(entry.workload, name).options
            options[name] = ResolvedOptions(resolve(known, values, name), (), classes)
        gpus = [Device(index=at, kind="gpu", uuid=f"GPU-{at}", capability=8.9) for at in range(devices)]
        made = make_plan(profile, options, gpus, 1, memory=memory)
        several = {name for name, test in profile.tests.items() if test.partition_scheme.type.spreads} - {"hstu"}
        assert len(made.labels) == len(profile.tests) - (len(several) if devices == 1 else 0)


def test_models_of_modern_lite_fit_into_8_gib() -> None:
    """States of 16 bytes per parameter, where they are trained, leave half of the memory to what a step keeps."""
    for name, entry in entries_of("modern-lite").items():
        if name in ("llm_pretrain_compiled", "llm_fsdp", "moe"):
            defaults = {"vocabulary": 32_768 if name != "llm_fsdp" else 128_256}
            keys = {one.name for one in msgspec.structs.fields(Dimensions)} & {*entry.arguments}
            size = msgspec.convert({**defaults, **{key: entry.arguments[key] for key in keys}}, Dimensions)
            assert 16 * size.parameters() < 4 * GIB, name


@pytest.mark.parametrize(
    ("size_gib", "planned"),
    [
        (16, set()),
        (22.2, {"serve_1k_1k_1", "serve_1k_1k_8", "serve_1k_8k_1", "serve_8k_1k_1", "speculative_1"}),
        (39.4, {"serve_1k_1k_64", "serve_1k_8k_8", "serve_8k_1k_8", "speculative_8"}),
        (79.6, {"speculative_64"}),
        (139.8, {"serve_1k_1k_256", "serve_1k_8k_64", "serve_8k_1k_64"}),
        (288, set()),
    ],
)
def test_serving_is_planned_where_it_fits(size_gib: float, planned: set[str]) -> None:
    """``planned``: what the next smaller size has no room for."""
    tests = entries_of("serve")
    needs = {name: parse_bytes(test.least_memory.each, name) for name, test in tests.items() if test.least_memory}
    assert needs.keys() == tests.keys()
    sizes = (16, 22.2, 39.4, 79.6, 139.8, 288)
    smaller = max((one for one in sizes if one < size_gib), default=0.0)
    assert {name for name, need in needs.items() if smaller < need / 0.9 / GIB <= size_gib} == planned


def test_serving_needs_what_its_weights_and_pages_take(catalogue: Catalogue) -> None:
    """Rounded up to a tenth of a GB."""
    for name, test in entries_of("serve").items():
        options = resolve(catalogue.workload(test.workload, name).options, test.arguments, name)
        sizes = {key: options[key] for key in msgspec.structs.asdict(LLAMA_8B) if key in options}
        assert msgspec.convert(sizes | {"tied": False}, Dimensions) == LLAMA_8B
        known = {key: value for key, value in options.items() if isinstance(value, int)}
        page = known.get("page", PAGE)
        kept = Mix(known["prompt"], known["answer"], 0).kept + known.get("drafts", -1) + 1
        models = [LLAMA_8B, LLAMA_1B] if "drafts" in known else [LLAMA_8B]
        needed = WORKSPACE + sum(
            paged_bytes(size, known["concurrency"] * pages_for(kept, page), page) for size in models
        )
        assert test.least_memory is not None
        assert 0 <= parse_bytes(test.least_memory.each, name) - needed < 10**8


def test_the_table_of_hstu_fills_half_of_the_memory_or_more_and_can_be_shared_out() -> None:
    entry = entries_of("modern2")["hstu"]
    columns = {option.name: option.default for option in hstu.own_options}["width"]
    for devices in entry.device_counts:
        hstu.check({}, devices)
    rows = entry.arguments["rows"]
    assert isinstance(rows, dict)
    for memory, count in rows.items():
        assert 0.47 < int(count) * int(columns) * 4 / parse_bytes(memory, "hstu") < 0.72


@pytest.mark.parametrize(
    ("capability", "planned"),
    [
        (8.0, ""),
        (8.9, "llm_pretrain_fp8 llm_prefill_fp8_compiled"),
        (9.0, "llm_pretrain_fp8 llm_prefill_fp8_compiled"),
        (10.0, "llm_pretrain_fp8 llm_prefill_fp8_compiled llm_pretrain_mxfp8 llm_prefill_mxfp8 llm_prefill_nvfp4"),
        (12.0, "llm_pretrain_fp8 llm_prefill_fp8_compiled llm_pretrain_mxfp8 llm_prefill_mxfp8 llm_prefill_nvfp4"),
    ],
)
def test_narrow_numbers_are_planned_where_the_gpu_multiplies_them(capability: float, planned: str) -> None:
    tests = entries_of("modern2") | entries_of("frontier")
    narrow = {name: test for name, test in tests.items() if test.least_capability}
    assert planned_of(tests, 24, 1, capability) & {*narrow} == {*planned.split()}
    for test in narrow.values():
        least = LEAST_CAPABILITY[str(test.arguments["numbers"])]
        assert test.least_capability == pytest.approx(least[0] + least[1] / 10)


def planned_of(tests: dict[str, Test], size_gib: float, count: int, capability: float = 9.0) -> set[str]:
    """Those that ``count`` GPUs of that memory and compute capability run."""
    profile = Profile("s", tests, "", "")
    options = {name: ResolvedOptions({}) for name in tests}
    devices = [Device(index=at, kind="gpu", uuid=f"GPU-{at}", capability=capability) for at in range(count)]
    made = make_plan(profile, options, devices, 1, memory=DeviceMemory("device 0", int(size_gib * GIB)))
    return {label.removeprefix("s.") for label in made.labels}


@pytest.mark.parametrize(
    ("size_gib", "count", "planned"),
    [
        (79.1, 1, ""),
        (23.6, 2, "llm_tp_decode_8b"),
        (39.4, 2, "llm_fsdp_3b moe_ep_2l llm_tp_decode_8b llm_cp"),
        (39.4, 4, "llm_fsdp_3b moe_ep_2l llm_tp_decode_8b llm_cp"),
        (23.6, 8, "llm_fsdp_3b moe_ep_2l llm_tp_decode llm_cp"),
        (79.1, 2, "llm_fsdp_3b moe_ep_6l llm_tp_decode llm_cp"),
        (79.1, 8, "llm_fsdp moe_ep_6l llm_tp_decode llm_cp moe_ep"),
        (139.8, 2, "llm_fsdp moe_ep_6l llm_tp_decode llm_cp"),
        (139.8, 4, "llm_fsdp moe_ep_6l llm_tp_decode llm_cp moe_ep"),
        (79.1, 3, "llm_fsdp"),
        (288, 8, "llm_fsdp moe_ep_6l llm_tp_decode llm_cp moe_ep"),
    ],
)
def test_a_node_runs_the_largest_model_of_each_kind_that_fits(size_gib: float, count: int, planned: str) -> None:
    """Beside `hstu`, and the sweeps where there are two GPUs."""
    tests = entries_of("modern2") | entries_of("parallel")
    spread = {name for name, test in tests.items() if test.partition_scheme.type.spreads}
    assert planned_of(tests, size_gib, count) & spread - {"hstu"} == {*(SWEEPS if count > 1 else ()), *planned.split()}


def test_modern2_has_the_serving_tests_of_the_curve() -> None:
    curve = entries_of("serve")
    assert [name for name, test in entries_of("modern2").items() if curve.get(name) == test] == [
        "serve_1k_1k_8",
        "serve_1k_1k_64",
        "serve_8k_1k_8",
    ]


def test_models_over_devices_need_what_their_weights_take(catalogue: Catalogue) -> None:
    """Rounded up to a tenth of a GB: 16 bytes a parameter in training, and two in decoding, beside keys and values."""
    for name, test in (entries_of("modern2") | entries_of("parallel")).items():
        if not test.partition_scheme.type.spreads or test.workload not in ("moe_ep", "llm_decode"):
            continue
        options = resolve(catalogue.workload(test.workload, name).options, test.arguments, name)
        names = {one.name for one in msgspec.structs.fields(Dimensions)}
        known = {key: value for key, value in options.items() if key in names} | {"tied": False}
        size = msgspec.convert(known | {"head_width": options.get("head_size", 0)}, Dimensions)
        assert (
            size
            == {
                "moe_ep": ROUTED_21B,
                "moe_ep_6l": replace(ROUTED_21B, layers=6),
                "moe_ep_2l": replace(ROUTED_21B, layers=2),
                "llm_tp_decode": LLAMA_70B,
                "llm_tp_decode_8b": LLAMA_8B,
            }[name]
        )
        rings = 4 * size.layers * size.kv_width * int(options.get("ring") or 0) * int(options["batch_size"] or 0)
        needed = 16 * size.parameters() if test.workload == "moe_ep" else 2 * (size.parameters() - size.head) + rings
        assert test.least_memory is not None
        assert 0 <= parse_bytes(test.least_memory.together, name) - needed < 1.1e8


@pytest.mark.parametrize(
    ("kind", "capability", "count", "planned"),
    [
        ("gpu", 9.0, 8, "bf16 fp8 tf32 memory bus pulse links collectives cpu ram disk"),
        ("gpu", 8.0, 1, "bf16 tf32 memory bus pulse cpu ram disk"),
        ("gpu", 7.5, 1, "memory bus cpu ram disk"),
        ("cpu", None, 2, "cpu ram disk"),
    ],
)
def test_stress_is_planned_as_far_as_the_devices_can(
    kind: Literal["gpu", "cpu"], capability: float | None, count: int, planned: str
) -> None:
    profile = read_profile(ROOT / "profiles" / "stress.json")
    options = {name: ResolvedOptions({}) for name in profile.tests}
    devices = [
        Device(index=at, kind=kind, uuid=f"GPU-{at}" if kind == "gpu" else None, capability=capability or msgspec.UNSET)
        for at in range(count)
    ]
    assert make_plan(profile, options, devices, 1).labels == tuple(f"stress.{name}" for name in planned.split())


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
        assert (row.work.unit, row.work.classic_factor) == (workload.unit, workload.classic_factor), label

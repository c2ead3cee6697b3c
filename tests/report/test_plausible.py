"""What cannot be, on the folder of a real run on two H200: as measured it passes, and four times as much does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tampering
from contradiction_attacks import measured_power
from honest import results_in
from slice_attacks import more_a_step, more_steps, multiplied

from milabench_ng.present.render.verification_tables import told_once
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify

BUNDLE = Path(__file__).parents[2] / "baselines" / "bundles" / "standard-2xH200-20261122.tar.gz"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result folder of a real run, of some tests of the suite."""
    return results_in(BUNDLE, tmp_path_factory.mktemp("real"))


@pytest.fixture
def folder(real: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(real, tmp_path / "results"))


def found(folder: Path) -> dict[str, str]:
    """What breaks rules or raises doubts, and why."""
    made = verify(folder, Rules())
    finders = [ruling.id for ruling in made.having("fail")] + [doubt.name for doubt in made.doubts]
    return {finder: tampering.told_by(made, finder) for finder in finders}


def test_four_times_as_much_everywhere_is_not_believed(folder: Path) -> None:
    tampering.records(lambda content: multiplied(content, 4))(folder)
    finders = found(folder)
    assert finders.keys() >= {"R37", "beyond-baseline"}
    told = finders["beyond-baseline"]
    assert "standard.convnet: up to" in told
    assert "that were measured on 2 x NVIDIA H200" in told
    assert "standard.wlm: up to" in told


def test_a_tenth_more_is_another_machine(folder: Path) -> None:
    tampering.records(lambda content: more_steps(content, 1.1))(folder)
    assert found(folder) == {}


def test_items_follow_from_steps_and_options(folder: Path) -> None:
    """Counts x 1.45 with steps, latencies and losses as they were, of a run of an older version."""
    tampering.records(more_a_step)(folder)
    told = found(folder)["R37"]
    for reason in ("93 images a step, but its options allow 64", "tokens a step, but its options allow 2240"):
        assert reason in told


@pytest.mark.parametrize(
    ("after_the_last_slice", "reason"),
    [(0, ""), (1, ""), (1000, "steps, its loss scale saw"), (-1, "steps, its loss scale saw")],
)
def test_several_ranks_end_with_one_step_and_not_with_a_slice(
    folder: Path, after_the_last_slice: int, reason: str
) -> None:
    """Seen on two H100: 58 steps in slices of three, and two after them."""

    def seen(content: dict[str, Any]) -> None:
        for rank in content["mnb"]["ranks"]:
            steps = sum(row[3] for row in rank["slices"]) + after_the_last_slice
            rank["skipped"] = {"steps": steps, "skipped": 0, "settled_steps": 1, "settled_skipped": 0}

    tampering.records(seen, "*.scaling.J?.1.*")(folder)
    told = found(folder).get("R37", "")
    assert (reason in told) if reason else not told


@pytest.mark.parametrize(
    ("workload", "dtype", "odd"),
    [
        ("llm_pretrain", "float8_e4m3fn", True),
        ("llm_prefill", "float4_e2m1fn_x2", True),
        ("llm_prefill", "float8_e4m3fn", False),
    ],
)
def test_only_weights_that_a_workload_converts_are_narrow(folder: Path, workload: str, dtype: str, odd: bool) -> None:
    """In fp8, `llm_pretrain` multiplies, and `llm_prefill` has its weights, too."""

    def converted(content: dict[str, Any]) -> None:
        launch, seen = content["mnb"]["launch"], content["mnb"]["precision"]
        launch["workload"], launch["arguments"]["numbers"] = workload, "fp8"
        launch["arguments"]["fp8"] = False
        seen["requested"], seen["dtypes"] = "bf16_master", {"bfloat16": 10, dtype: 90}

    tampering.record(converted, "*.convnet.J0.1.*")(folder)
    told = f"bf16_master was requested, but parameters are {dtype}"
    assert (told in found(folder)["R18"]) == odd  # the probe ran in fp32, which breaks the rule in any case


def test_a_reason_is_told_once_for_all_launches_that_have_it() -> None:
    reasons = ["a.vae J0.0: it is late", "a.vae J0.1: it is late", "a.vae J0.2: it is early", "the run is late"]
    assert told_once(reasons) == ["a.vae J0.0 and 1 more: it is late", "a.vae J0.2: it is early", "the run is late"]


def test_energy_and_power_of_the_run_agree_and_forged_ones_do_not(folder: Path) -> None:
    def saved(content: dict[str, Any]) -> None:
        """The same work, for half of the energy."""
        before, after = (content["mnb"]["conditions"][edge]["gpus"] for edge in ("before", "after"))
        for uuid, state in after.items():
            state["energy_mj"] = (state["energy_mj"] + 3 * before[uuid]["energy_mj"]) // 4

    tampering.records(saved, "*.convnet.*")(folder)
    assert "J in" in found(folder)["gpu-counters"]


def test_an_idle_gpu_with_all_items_is_found(folder: Path) -> None:
    """One device, and then all: then only the baseline of the same GPU shows it."""

    def rested(content: dict[str, Any]) -> None:
        measured_power(content, 90.0, 8.0)

    tampering.record(rested, "*.convnet.J0.1.*")(folder)
    assert "J0.1: an item took" in found(folder)["idle-gpus"]
    tampering.records(rested, "*.convnet.*")(folder)
    (reason,) = found(folder)["idle-gpus"].splitlines()
    assert reason.startswith("standard.convnet: an item took")
    assert "on 2 x NVIDIA H200" in reason

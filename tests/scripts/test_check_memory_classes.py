"""scripts/check-memory-classes on a CPU: the options of each class, and a run whose memory nothing limits."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milabench_ng.model.profile import read_profile

SCRIPT = Path(__file__).parents[2] / "scripts" / "check-memory-classes"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_a_limit_is_what_the_smallest_device_of_a_class_has(script: dict[str, Any]) -> None:
    """0.92 of 24, 40 and 80 GiB, less 1.5 GiB."""
    limits = [script["limit_of"](f"{size}GiB") / (1 << 30) for size in (24, 40, 80)]
    assert limits == pytest.approx([20.58, 35.3, 72.1])


def test_tests_of_one_device_run_with_the_batch_of_their_class(script: dict[str, Any]) -> None:
    tests = script["entries"]("modern", [])
    assert not {"llm_fsdp", "llm_fsdp_3b", "collectives"} & {*tests}
    found = [script["options_of"]("llm_decode", tests["llm_decode"], f"{size}GiB") for size in (24, 40, 80)]
    assert [each["batch_size"] for each in found] == [8, 32, 96]
    assert found[0]["ring"] == 4096
    assert script["options_of"]("dlrm", tests["dlrm"], "40GiB")["rows"] == 2_000_000


def test_models_over_several_devices_are_left_out(script: dict[str, Any]) -> None:
    tests = read_profile(Path(__file__).parents[2] / "profiles" / "modern2.json").tests
    together = {
        name for name, test in tests.items() if test.partition_scheme.type.spreads and 1 not in test.device_counts
    }
    assert {*script["entries"]("modern2", [])} == {*tests} - together


def test_what_fits_and_what_fails_has_a_line_each() -> None:
    """Copies read no data; a prompt does, and there is none in this root."""
    asked = [
        "--profile",
        "modern-lite",
        "--name",
        "h2d",
        "--name",
        "llm_prefill",
        "--memory",
        "8GiB",
        "-d",
        "/dev/null",
    ]
    done = subprocess.run([sys.executable, str(SCRIPT), *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    prompt, copies = sorted(done.stdout.splitlines(), key=lambda line: "h2d" in line)
    assert copies.split() == ["h2d", "8GiB", "limit", "6.3", "GB", "fits,", "peak", "0.0", "GB"]
    assert "failed: " in prompt
    assert "/dev/null" in prompt

"""What a run cannot be beside the measured baseline of the same GPU: all tests of lambda on a real H200."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tampering
from honest import results_in
from slice_attacks import multiplied

from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify

BUNDLE = next((Path(__file__).parents[2] / "baselines" / "bundles").glob("lambda-1x*.tar.gz"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_in(BUNDLE, tmp_path_factory.mktemp("lambda"))


def padded(content: dict[str, Any]) -> None:
    """Padding is counted as work: steps, latencies and losses as they were."""
    multiplied(content, 1.4)


def padded_from_another_seed(content: dict[str, Any]) -> None:
    padded(content)
    content["mnb"]["launch"]["arguments"]["seed"] = 7


def padded_of_other_data(content: dict[str, Any]) -> None:
    padded(content)
    content["mnb"]["data"]["scale"] = 0.5


def thrifty(content: dict[str, Any]) -> None:
    for monitored in content["gpu_monitor"].values():
        monitored["memory"] = dict.fromkeys(monitored["memory"], 2048.0)


def without_backlog(content: dict[str, Any]) -> None:
    """As if its pictures had stayed on the device."""
    for rank in content["mnb"]["ranks"]:
        rank["backlog"] = None
        for row in rank["slices"]:
            row[5] = None


def dated(content: dict[str, Any]) -> None:
    """As if it had run a year later."""
    content["mnb"]["started_utc"] = content["mnb"]["started_utc"].replace("2026", "2027")


@pytest.mark.parametrize(
    ("finder", "change", "names", "message"),
    [
        ("beyond-baseline", padded, "*.gnmt_*", "lambda.gnmt_amp: 204104 tokens a step, 145788 of the same options"),
        (
            "beyond-baseline",
            padded_from_another_seed,
            "*.gnmt_*",
            "lambda.gnmt_amp: 204104 tokens a step, 145788 of the same options",
        ),
        (
            "unlike-steps",
            padded,
            "*.gnmt_tf32.*",
            "lambda.gnmt_tf32 J0.0: .* items per step, but others with the same batches have",
        ),
        ("beyond-baseline", thrifty, "*.txl_large_amp.*", "lambda.txl_large_amp: 2,048 MiB at most, 112,"),
        (
            "R4",
            without_backlog,
            "*.resnet50_amp_loader.*",
            "loader processes feed it, but its slices have no prefetched items",
        ),
        (
            "shipped-rate",
            dated,
            "*.ncf_tf32.*",
            "lambda.ncf_tf32: its rate is that of .*lambda-1xH200.*, to the last digit",
        ),
    ],
)
def test_what_no_other_machine_has(
    real: Path, tmp_path: Path, finder: str, change: Callable[[dict[str, Any]], None], names: str, message: str
) -> None:
    folder = Path(shutil.copytree(real, tmp_path / "results"))
    tampering.records(change, names)(folder)
    told = tampering.told_by(verify(folder, Rules()), finder)
    assert re.search(message, told), told


def test_the_run_of_a_shipped_baseline_is_named(real: Path) -> None:
    assert re.search(r"the baseline from .*lambda-1xH200.* is made of this run", verify(real, Rules()).facts["shipped"])


def test_other_data_are_not_held_against_a_baseline(real: Path, tmp_path: Path) -> None:
    """Their batches may be others."""
    folder = Path(shutil.copytree(real, tmp_path / "results"))
    tampering.records(padded_of_other_data, "*.gnmt_*")(folder)
    assert "gnmt" not in tampering.told_by(verify(folder, Rules()), "beyond-baseline")

"""Lambda's tasks over several devices: one job in two ranks, with gloo on the CPU."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import lambda_ranks
import pytest
from gloo_pair import RANKS, both
from launching import Places, data_of

from milabench_ng.model.profile import Scheme, read_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.worker.discovery import builtin_workloads

AVERAGED: dict[str, dict[str, Any]] = {
    "ncf": {"batch_size": 64, "factors": 4, "dropout": 0.0},
    "gnmt": {"batch_size": 4, "hidden": 16, "layers": 3, "dropout": 0.0},
    "txl": {
        "batch_size": 4,
        "layers": 2,
        "width": 8,
        "heads": 2,
        "inner": 16,
        "length": 12,
        "memory": 8,
        "dropout": 0.0,
        "learning_rate": 0.01,
    },
    "bert_squad": {
        "batch_size": 4,
        "layers": 2,
        "width": 16,
        "heads": 2,
        "inner": 16,
        "length": 64,
        "learning_rate": 1e-3,
    },
}
"""Tasks without batch normalisation, whose loss is a mean over the batch."""
NORMALISED: dict[str, dict[str, Any]] = {
    "ssd_resnet50": {"batch_size": 2, "learning_rate": 1e-3},
    "resnet50": {"batch_size": 2, "learning_rate": 1e-3},
    "maskrcnn": {"batch_size": 1, "short_side": 32, "long_side": 64, "learning_rate": 1e-3},
    "tacotron2": {"batch_size": 3, "frames": 10, "letters": 12, "learning_rate": 1e-3},
    "waveglow": {"batch_size": 1, "learning_rate": 1e-3},
}


def read_by(name: str, place: Places) -> Path | None:
    """Where the small set of a workload lies, if it reads one."""
    data_set = data_of(builtin_workloads()[name], {})
    return data_set and place(data_set.name)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, place: Places) -> dict[str, list[Any]]:
    """What both ranks tell of each task; they are started once."""
    shared = {
        name: functools.partial(lambda_ranks.shared, name, read_by(name, place), given, RANKS)
        for name, given in AVERAGED.items()
    }
    own = {
        name: functools.partial(lambda_ranks.own, name, read_by(name, place), given)
        for name, given in NORMALISED.items()
    }
    return both(tmp_path_factory.mktemp("ranks") / "rendezvous", {**shared, **own})


@pytest.mark.slow
@pytest.mark.parametrize("name", AVERAGED)
def test_ranks_have_the_losses_of_one_process_with_the_whole_batch(
    name: str, told: dict[str, list[Any]], place: Places
) -> None:
    """Of a step, the mean of theirs is its loss; their weights are its weights."""
    if name == "bert_squad":
        pytest.importorskip("transformers", reason="the extra language is not installed")
    whole = lambda_ranks.shared(name, read_by(name, place), AVERAGED[name], 1, 0)
    parts = told[name]
    assert not [part for part in parts if isinstance(part, str)]
    assert len(whole["losses"]) == 3
    means = [sum(losses) / RANKS for losses in zip(*(part["losses"] for part in parts), strict=True)]
    assert means == pytest.approx(whole["losses"], rel=1e-5)
    # BERT's last two biases shift all logits alike: no loss depends on them, and Adam moves them by rounding errors.
    free = (-3, -1) if name == "bert_squad" else ()
    compared = [at for at in range(len(whole["weights"])) if at - len(whole["weights"]) not in free]
    for part in parts:
        theirs, its = ([weights[at] for at in compared] for weights in (part["weights"], whole["weights"]))
        assert theirs == pytest.approx(its, rel=1e-4, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMALISED)
def test_ranks_with_batches_of_their_own_train_one_network(name: str, told: dict[str, list[Any]]) -> None:
    """Batch normalisation is that of a rank, as in the originals, so that only the weights are equal."""
    first, second = told[name]
    assert not isinstance(first, str), first
    assert first["losses"][0] == pytest.approx(second["losses"][0], rel=1e-4)
    assert first["weights"] == second["weights"]


def test_one_device_needs_no_group() -> None:
    """Each GPU's tenant runs as it did; only a launch over several has ranks."""
    for name in {**AVERAGED, **NORMALISED}:
        definition = builtin_workloads()[name]
        assert definition.describe(name, "").distributed
        assert not definition.in_ranks(1)
        assert definition.in_ranks(2)
    assert builtin_workloads()["scaling"].in_ranks(1)
    assert not builtin_workloads()["vae"].in_ranks(1)


def test_the_profile_has_a_job_over_all_devices_of_each_task() -> None:
    """With the batch on each that a GPU has alone, in what the suite calls FP16."""
    tests = read_profile(profile_file(Path("lambda"))).tests
    jobs = {name: test for name, test in tests.items() if name.endswith("_ddp")}
    assert {test.workload for test in jobs.values()} == {*AVERAGED, *NORMALISED}
    assert len(jobs) == 11
    for name, job in jobs.items():
        alone = tests[name.removesuffix("_ddp")]
        assert (job.arguments, job.data_scale) == (alone.arguments, alone.data_scale)
        assert (job.partition_scheme.type, job.least_devices) == (Scheme.NORMAL, 2)

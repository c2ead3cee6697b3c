"""One thread for torch: these tests fork, and the machine may be small. The tests of the bench lend their channel."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch  # here, not above: a conftest cannot be skipped

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the jobs of `rank_jobs` came to in two ranks, which are started once: they import torch anew."""
    import rank_jobs
    from gloo_pair import both

    from milabench_ng.datasets import registry
    from milabench_ng.datasets.prepare import prepare

    root = tmp_path_factory.mktemp("ranks")
    clicks = prepare(registry.find("clicks"), root, 1 / 64, lambda _done, _total: None, 1).path
    names = ("talk", "lie", "travel", "damage", "pictures", "sweep_wrongly", "sharded", "sharded_bf16")
    names += ("history_step", "read_histories")
    jobs = {
        **{name: getattr(rank_jobs, name) for name in names},
        **{name: functools.partial(rank_jobs.swept, name) for name in rank_jobs.OPERATIONS},
        "recommend": functools.partial(rank_jobs.recommend, str(clicks)),
    }
    return both(root / "rendezvous", jobs)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """Where a small twin of a text lies."""
    from milabench_ng.datasets.prepare import prepare

    root = tmp_path_factory.mktemp("language")
    return lambda data_set: prepare(data_set, root, 1 / 128, lambda _done, _total: None, 1).path

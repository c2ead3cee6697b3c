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
def ranks(tmp_path_factory: pytest.TempPathFactory, place: Callable[..., Path]) -> dict[str, list[Any]]:
    """What the jobs of `rank_jobs` came to in two ranks, which are started once: they import torch anew."""
    import rank_jobs
    from gloo_pair import both

    names = ("talk", "lie", "travel", "damage", "pictures", "sweep_wrongly", "sharded", "sharded_bf16")
    names += ("history_step", "read_histories")
    jobs = {
        **{name: getattr(rank_jobs, name) for name in names},
        **{name: functools.partial(rank_jobs.swept, name) for name in rank_jobs.OPERATIONS},
        "recommend": functools.partial(rank_jobs.recommend, place("clicks")),
    }
    return both(tmp_path_factory.mktemp("ranks") / "rendezvous", jobs)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Where a small dataset lies, by its name."""
    from launching import places

    return places(tmp_path_factory.mktemp("data"))

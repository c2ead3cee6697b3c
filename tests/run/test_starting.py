"""The worker server is forked only while it has one thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench_ng.model.errors import MnbError
from milabench_ng.run.execution.worker_server import check_threads
from milabench_ng.run.jobs import spared


def test_a_server_with_threads_is_not_forked() -> None:
    check_threads(1)
    with pytest.raises(MnbError, match=r"has 3 threads after importing torch .* Use --cold-start"):
        check_threads(3)


def may_spare() -> bool:
    """CAP_SYS_RESOURCE (capabilities(7)), which root in a container may lack."""
    [line] = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    return bool(int(line.split()[1], 16) >> 24 & 1)


def test_the_orchestrator_is_spared_while_it_runs_where_it_may_be() -> None:
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text()
    with spared():
        assert score.read_text() == ("-900\n" if may_spare() else before)
    assert score.read_text() == before

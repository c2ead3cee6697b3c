"""A rank of a launch over nodes: what it finds wrong is a problem of the launch."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist

from milabench_ng.bench import Bench
from milabench_ng.model.builtin import read_builtin
from milabench_ng.records.links import MeetingPlan, NodesLaunch, Turn
from milabench_ng.worker import over_nodes as module
from milabench_ng.worker.over_nodes import over_nodes


@pytest.mark.parametrize("wrong", [0, 2])
def test_wrong_results_are_a_problem(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def workload(bench: Bench, **_: object) -> None:
        bench.verifier.begin("GB", "made up")
        for step in bench.measure(iter(range(1 << 30)), count=1):
            bench.verifier.note("messages", torch.tensor(int(step < wrong)), 1.0)

    monkeypatch.setattr(module, "builtin_workloads", lambda: {"collectives": workload})
    monkeypatch.setattr(module, "group_of", lambda *_: nullcontext())
    monkeypatch.setattr(module.dist, "barrier", lambda: None)
    launch = NodesLaunch(
        test="t", workload="collectives", unit="x", arguments=read_builtin()["collectives"].defaults, window_s=0.2
    )
    found = over_nodes(
        dist.HashStore(),
        MeetingPlan(nodes=("a",), rounds=()),
        Turn(backend="gloo", devices=1, gone=()),
        launch,
        rank=0,
        ranks=1,
        place=0,
    )
    assert found.problem == (f"{wrong} checks found wrong results" if wrong else "")
    assert (found.rate is None) == bool(wrong)

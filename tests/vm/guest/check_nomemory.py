"""Booted with cgroup_disable=memory: CPUs can be fenced, RAM cannot."""

from __future__ import annotations

import pytest

from milabench_ng.fence.choosing import choose, open_fence
from milabench_ng.fence.probing.probe import probe
from milabench_ng.model.errors import IsolationError
from milabench_ng.records.isolation import Share


def test_it_is_partial_and_named() -> None:
    found = probe()
    assert found.tier == "partial"
    assert any(one.startswith("isolation: the memory controller is disabled in the kernel") for one in found.messages)
    with pytest.raises(IsolationError, match=r"the memory controller is disabled .* this node offers partial"):
        choose(found, "full")


def test_cpus_are_fenced_all_the_same() -> None:
    fence = open_fence(probe(), "auto", "checked")
    try:
        group = fence.create("t0", Share((2,), (0, 1), 1 << 27, 1 << 27, 50, cores=1))
        assert group.effective().cpus == (2,)
        assert group.effective().memory_bytes is None
    finally:
        fence.close()

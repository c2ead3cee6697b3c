"""A group that the user names holds the tenants, or the run is refused."""

from __future__ import annotations

import pytest

from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.fence.choosing import IsolationRequest, require_groups
from milabench_ng.model.errors import InputError

NOTHING = Capabilities("v2", "6.1", True, {})
WHOLE = Capabilities(
    "v2",
    "6.1",
    True,
    {name: Controller(True, "v2", "/sys/fs/cgroup/mine") for name in ("cpuset", "memory", "pids", "cpu", "io")},
)


@pytest.mark.parametrize(("found", "isolation"), [(NOTHING, "auto"), (WHOLE, "none"), (WHOLE, "affinity")])
def test_no_other_fence_takes_its_place(found: Capabilities, isolation: IsolationRequest) -> None:
    with pytest.raises(InputError, match="--cgroup-parent /nosuch: no group can be made below it"):
        require_groups(found, isolation, "/nosuch")


def test_a_group_that_holds_is_right() -> None:
    require_groups(WHOLE, "auto", "/mine")

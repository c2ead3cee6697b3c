"""What is said about nodes where not everything can be fenced."""

from __future__ import annotations

import errno

import pytest
from msgspec.structs import replace

from milabench_ng.fence.backends import affinity, cgroup1, cgroup2, none
from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.fence.choosing import BACKENDS, choose
from milabench_ng.fence.kernel.mounts import CgroupMount
from milabench_ng.fence.probing.messages import messages
from milabench_ng.model.errors import IsolationError
from milabench_ng.records.isolation import Isolation, Mode, Share

UNIFIED = CgroupMount("/sys/fs/cgroup", "/", 2)
NAMES = ("cpuset", "memory", "pids")


def found(mode: Mode, refused: dict[str, Controller] | None = None, root: bool = True, **more: str) -> Capabilities:
    fine = {name: Controller(True, parent=f"/sys/fs/cgroup/{name}") for name in NAMES}
    return Capabilities(mode, "6.1", root, fine | (refused or {}), **more)


def no(code: int = 0, where: str = "/sys/fs/cgroup", why: str = "") -> dict[str, Controller]:
    return dict.fromkeys(NAMES, Controller(False, parent=where, why=why, code=code))


def said(capabilities: Capabilities, own: str = "/", session: bool = False) -> str:
    return "\n".join(messages(capabilities, (UNIFIED,), {"": own}, session))


@pytest.mark.parametrize(
    ("capabilities", "start"),
    [
        (
            found("v1", no(errno.EACCES, "/sys/fs/cgroup/cpuset"), root=False),
            "isolation: cgroup v1: no permission to create groups in /sys/fs/cgroup/cpuset (EACCES).",
        ),
        (
            found("v2", no(errno.EACCES), root=False),
            "isolation: no write permission on /sys/fs/cgroup; no systemd user session",
        ),
        (
            found("v2", {"cpuset": Controller(False, why="not delegated")}, root=False),
            'isolation: systemd delegates only "memory pids" to this user: cpuset and io are missing',
        ),
        (
            found("v2", no(why="not delegated to /sys/fs/cgroup/x", where="/sys/fs/cgroup/x")),
            "isolation: /sys/fs/cgroup/x has no cpuset and memory controller, because a group above keeps it.",
        ),
        (found("v2", no(errno.EROFS)), "isolation: /sys/fs/cgroup is mounted read-only (container). Docker:"),
        (
            found("v2", no(errno.EBUSY, why="other processes live there (pids 12, 34)")),
            "isolation: cannot enable controllers in /sys/fs/cgroup: other processes live there (pids 12, 34): EBUSY",
        ),
        (
            found("v2", {"memory": Controller(False, why="disabled in the kernel")}),
            "isolation: the memory controller is disabled in the kernel (cgroup_disable=memory",
        ),
        (
            Capabilities(
                "v1", "5.4", True, {"memory": Controller(False, why="does not account swap")}, swap_bytes=8 << 30
            ),
            "isolation: this machine has 8.0 GiB swap and the kernel does not account it",
        ),
        (
            found("hybrid", unified="/sys/fs/cgroup/unified"),
            "isolation: hybrid cgroups: limits on v1 (cpuset, memory, pids), kill and pressure on v2",
        ),
    ],
)
def test_messages(capabilities: Capabilities, start: str) -> None:
    assert said(capabilities).startswith(start)


def test_user_with_systemd_is_told_how_to_get_a_scope() -> None:
    assert "systemd-run --user --scope -p Delegate=yes" in said(found("v2", no(errno.EACCES)), session=True)


def test_foreign_namespace() -> None:
    assert said(found("v2"), own="/../..").startswith("isolation: this process is in cgroup /../.. outside")


def test_nothing_to_say_where_all_works() -> None:
    assert said(found("v2")) == ""


def test_a_record_that_does_not_say_who_made_the_groups_says_it_by_the_back_end() -> None:
    share = Share((0,), (0,), 1, 1, 1, 1)
    for backend in BACKENDS:
        seen = Isolation(backend.NAME, "full", "v2", "6.1", "", "", share)
        assert seen.grouped_by == backend.GROUPS_BY
        assert replace(seen, backend="jail", groups_by=backend.GROUPS_BY).grouped_by == backend.GROUPS_BY


def test_choice_of_back_end() -> None:
    assert choose(found("v2"), "auto") is cgroup2
    assert choose(found("hybrid"), "full") is cgroup1
    assert choose(found("v2"), "affinity") is affinity
    assert choose(found("v2"), "none") is none
    assert choose(found("mixed"), "auto") is affinity
    assert choose(found("v2", no(errno.EACCES)), "auto") is affinity
    assert choose(found("v2", {"cpuset": Controller(False)}), "partial") is cgroup2
    with pytest.raises(IsolationError, match="Asked for --isolation full, but this node offers partial"):
        choose(found("v2", {"cpuset": Controller(False)}), "full")
    with pytest.raises(IsolationError, match="this node offers affinity"):
        choose(found("mixed"), "partial")

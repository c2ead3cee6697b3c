"""When a systemd scope is asked for, and how; what runs in one is shown by tests/vm."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from milabench_ng.fence.backends import scope
from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.fence.choosing import choose, enter_scope
from milabench_ng.fence.kernel.mounts import own_scope
from milabench_ng.records.isolation import Mode

INSIDE = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/mnb-7-ab.scope"
SESSION = {"XDG_RUNTIME_DIR": "/run/user/1000"}


def found(parent: str = "", *, mode: Mode = "v2", root: bool = False) -> Capabilities:
    """A node where everything can be fenced below `parent`, or nothing without one."""
    controller = Controller(True, "v2", parent) if parent else Controller(False, code=errno.EACCES)
    return Capabilities(mode, "6.1", root, dict.fromkeys(("cpuset", "memory", "pids", "io"), controller))


def test_the_scope_of_a_group_is_the_part_that_systemd_made() -> None:
    assert own_scope(f"{INSIDE}/mnb-main") == INSIDE
    assert own_scope(INSIDE) == INSIDE
    assert own_scope("/user.slice/session-3.scope") == ""
    assert own_scope("/system.slice/mnb-7-ab.scopes/x") == ""


@pytest.mark.parametrize(
    ("capabilities", "environ", "systemd", "expected"),
    [
        (found(), SESSION, True, True),  # a user who can do nothing by himself
        (found(), {}, True, False),  # no session, so no manager to ask
        (found(), SESSION, False, False),  # another init
        (found(mode="hybrid"), SESSION, True, False),  # systemd does not delegate v1
        (found("/sys/fs/cgroup/x"), SESSION, True, False),  # everything is delegated to this user already
        (found(INSIDE), SESSION, True, False),  # in one already
        (found(), {**SESSION, "MNB_SCOPE": "mnb-7-ab"}, True, False),  # tried already
        (found("/sys/fs/cgroup", root=True), {}, True, True),  # root could, below groups that are systemd's
        (found("/sys/fs/cgroup", root=True), {}, False, False),
    ],
)
def test_a_scope_is_asked_for_where_it_helps(
    capabilities: Capabilities, environ: dict[str, str], systemd: bool, expected: bool
) -> None:
    assert scope.worthwhile(capabilities, environ, systemd) is expected


@pytest.mark.parametrize(
    ("version", "root", "expected"),
    [
        ("systemd 252 (252.39-1~deb12u1)", False, "--user --scope -q --collect --unit=u -p Delegate=yes --"),
        ("systemd 253 (253.5)", True, "--scope -q --collect --unit=u -p Delegate=yes -p OOMPolicy=continue --"),
    ],
)
def test_one_tenant_out_of_memory_does_not_stop_the_scope(version: str, root: bool, expected: str) -> None:
    assert scope.command("u", version, root) == ("systemd-run", *expected.split())


def test_the_back_end_is_chosen_inside_of_a_scope_only() -> None:
    assert choose(found(INSIDE), "full").NAME == "scope"
    assert choose(found("/sys/fs/cgroup"), "full").NAME == "cgroup2"


def test_scopes_of_other_runs_are_found_beside_the_own(tmp_path: Path) -> None:
    for name in ("mnb-1-aa.scope", "mnb-2-bb.scope", "session-3.scope"):
        (tmp_path / name).mkdir()
    own, other = f"{tmp_path}/mnb-1-aa.scope", f"{tmp_path}/mnb-2-bb.scope"
    assert scope.other_scopes(found(own)) == (other,)
    assert scope.other_scopes(found("/sys/fs/cgroup")) == ()


def test_nothing_happens_where_nothing_is_to_be_fenced() -> None:
    enter_scope("none", None)
    enter_scope("affinity", None)
    enter_scope("auto", "some/group")

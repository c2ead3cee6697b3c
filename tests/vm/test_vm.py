"""The fence on hosts that we do not have: a guest per way to boot, run by `scripts/test --vm` only (some minutes)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from vm_machine import NO_SYSTEMD, boot, build

pytestmark = [
    pytest.mark.skipif("MNB_TEST_VM" not in os.environ, reason="boots virtual machines: scripts/test --vm"),
    pytest.mark.timeout(1800),
]
HYBRID = "systemd.unified_cgroup_hierarchy=0"
LEGACY = "systemd.legacy_systemd_cgroup_controller=1"
GUEST = "tests/vm/guest"
REAL = ("tests/fence/test_tenant.py", "tests/fence/test_crash.py", "tests/fence/test_affinity.py")


@pytest.fixture(scope="session")
def folder() -> Path:
    return build()


@pytest.mark.parametrize(
    ("checks", "kernel"),
    [
        pytest.param(("tests/fence", f"{GUEST}/check_plain.py"), (NO_SYSTEMD,), id="v2"),
        pytest.param((f"{GUEST}/check_systemd.py",), (), id="v2-systemd"),
        pytest.param((*REAL, f"{GUEST}/check_v1_user.py"), (HYBRID,), id="hybrid"),
        pytest.param((*REAL, f"{GUEST}/check_v1_user.py"), (HYBRID, LEGACY), id="legacy"),
        pytest.param((f"{GUEST}/check_nomemory.py",), (NO_SYSTEMD, "cgroup_disable=memory"), id="no-memory"),
    ],
)
def test_guest(
    folder: Path, checks: tuple[str, ...], kernel: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = boot(folder, checks, *kernel)
    with capsys.disabled():
        print("", *(line for line in said.splitlines() if " passed" in line or " failed" in line), sep="\n")
    assert status == 0, said

"""An ordinary user on cgroup v1, hybrid or not: systemd delegates nothing there."""

from __future__ import annotations

from users import run


def test_he_gets_affinity_and_the_reason() -> None:
    told = run("alice")
    assert (told["backend"], told["tier"]) == ("affinity", "affinity")
    assert any(
        one.startswith("isolation: cgroup v1: no permission to create groups in /sys/fs/cgroup/cpuset (EACCES).")
        for one in told["notes"]
    )
    assert told["cause"] == "oom"


def test_root_fences_fully_and_without_a_scope() -> None:
    told = run("root")
    assert (told["backend"], told["tier"], told["cause"]) == ("cgroup1", "full", "oom")

"""What other programs take of the CPU time, worked out by hand."""

from __future__ import annotations

import pytest

from milabench_ng.model.bounds import Spread
from milabench_ng.node import foreign_load
from milabench_ng.node.foreign_load import foreign_share


def host(busy_pct: float) -> dict[str, Spread]:
    return {"cpu_busy_pct": Spread(18, 0.0, busy_pct, 100.0, 8.5)}


def tenant(seconds: float, span_s: float = 8.0) -> dict[str, Spread]:
    """A tenant that used this much CPU time between its first sample and its last."""
    return {"cpu_s": Spread(17, 5.0, 6.0, 5.0 + seconds, span_s)}


@pytest.mark.parametrize(
    ("busy_pct", "tenants", "cpus", "share"),
    [
        (100.0, [tenant(8.0), tenant(4.0)], 2, 0.25),  # 2 CPUs are busy, the tenants use 1.5
        (50.0, [tenant(16.0), tenant(16.0)], 8, 0.0),  # 4 are busy, and all of them for the tenants
        (10.0, [tenant(0.8)], 1, 0.0),  # the tenant's own
        (3.0, [tenant(4.0)], 100, 5 / 6),  # 3 busy, the tenant uses half of one: 2.5 CPUs are 2.5 % of the node
        (2.0, [tenant(4.0)], 100, 0.0),  # 1.5 are under 2 % of the node
        (100.0, [tenant(1.0, span_s=1.0)], 2, None),  # too short to tell
        (100.0, [{}], 2, None),  # no group of its own: its time is not known
        (0.0, [tenant(0.0)], 2, None),
    ],
)
def test_the_share_that_no_tenant_used(
    busy_pct: float, tenants: list[dict[str, Spread]], cpus: int, share: float | None
) -> None:
    found = foreign_share(host(busy_pct), tenants, cpus)
    assert found is None if share is None else found == pytest.approx(share)


def test_nothing_is_known_without_samples_of_the_node() -> None:
    assert foreign_share({}, [tenant(1.0)], 2) is None


@pytest.mark.parametrize(("window_s", "told"), [(9.0, "may get a comparability warning"), (1.0, "1 s is too short")])
def test_no_warning_is_announced_that_a_short_window_cannot_give(
    window_s: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = iter([(0.0, 0.0, 0.0), (1.0, 0.0, 1.0)])
    monkeypatch.setattr(foreign_load, "cpu_seconds", lambda: next(read))
    (note,) = foreign_load.busy_note(window_s)
    assert told in note

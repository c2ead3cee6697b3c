"""What the command line says of parts of caches."""

from __future__ import annotations

import os
from io import StringIO

import msgspec
import pytest

from milabench_ng.cli import call
from milabench_ng.cli.shares import share_section
from milabench_ng.fence.sharing.layout import Slot
from milabench_ng.model.plan import Device
from milabench_ng.model.units import GIB
from milabench_ng.node.resctrl import LastLevelCache, Resctrl
from milabench_ng.present.render.terminal import write_parts
from milabench_ng.records.isolation import CachePart, Share
from milabench_ng.run.planning import readiness

SHARE = Share((0, 1), (0,), GIB, GIB, 100, 2)


def table(*shares: Share) -> str:
    slots = tuple(
        Slot(str(index), Device(index=index, kind="gpu", uuid=f"GPU-{index}"), share)
        for index, share in enumerate(shares)
    )
    stream = StringIO()
    write_parts([share_section(slots)], stream)
    return stream.getvalue()


def test_the_table_of_shares_has_parts_of_caches_where_there_are_some() -> None:
    assert "cache" not in table(SHARE)
    parts = (CachePart(0, 0x1F, 50), CachePart(1, 0x7))
    told = table(msgspec.structs.replace(SHARE, cache=parts))
    assert "cache 0: 5 parts (1f), 50% of the bandwidth; cache 1: 3 parts (7)" in told


def test_doctor_says_what_each_tenant_would_get(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    caches = (LastLevelCache(0, tuple(range(os.cpu_count() or 1))),)
    offer = Resctrl(classes=8, cache_parts=11, cache_mask=0x7FF, least_bandwidth_pct=10, caches=caches)
    monkeypatch.setattr(readiness, "read_resctrl", lambda: offer)
    call(["doctor", "--tenants", "1", "--ram-total", "64GiB"])
    assert "--cache-shares  device 0: cache 0: 11 parts (7ff), 100% of the bandwidth" in capsys.readouterr().out
    monkeypatch.setattr(readiness, "read_resctrl", lambda: msgspec.structs.replace(offer, classes=1))
    call(["doctor", "--tenants", "1", "--ram-total", "64GiB"])
    assert "each of 1 tenant needs a group, and 0 are left" in " ".join(capsys.readouterr().out.split())

"""Equal parts of last-level caches and memory bandwidth, against hand-computed cases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import IsolationRequest, require_cache_groups
from milabench_ng.fence.sharing.cache_parts import cache_notes, with_cache_parts
from milabench_ng.model.errors import IsolationError
from milabench_ng.model.units import GIB
from milabench_ng.node.resctrl import LastLevelCache, Resctrl
from milabench_ng.records.isolation import CachePart, Share

ONE_SOCKET = Resctrl(
    classes=8,
    cache_parts=11,
    cache_mask=0x7FF,
    least_bandwidth_pct=10,
    bandwidth_step_pct=10,
    caches=(LastLevelCache(0, tuple(range(16))),),
)
SOCKETS = (LastLevelCache(0, tuple(range(8))), LastLevelCache(1, tuple(range(8, 16))))
TWO_SOCKETS = msgspec.structs.replace(ONE_SOCKET, caches=SOCKETS)


def shares(*cpus: Iterable[int]) -> dict[str, Share]:
    made = map(tuple, cpus)
    return {str(slot): Share(own, (0,), GIB, GIB, 100, len(own)) for slot, own in enumerate(made)}


def parts(offer: Resctrl, *cpus: Iterable[int]) -> dict[str, Any]:
    divided = with_cache_parts(shares(*cpus), offer)
    return {slot: share.cache for slot, share in divided.items()}


def test_two_tenants_of_eleven_parts_get_five_each_and_one_is_nobodys() -> None:
    assert parts(ONE_SOCKET, range(8), range(8, 16)) == {
        "0": (CachePart(0, 0b000_0001_1111, 50),),
        "1": (CachePart(0, 0b011_1110_0000, 50),),
    }


def test_four_tenants_on_two_sockets_share_the_cache_of_their_own() -> None:
    found = parts(TWO_SOCKETS, range(4), range(4, 8), range(8, 12), range(12, 16))
    assert found == {
        "0": (CachePart(0, 0x1F, 50),),
        "1": (CachePart(0, 0x3E0, 50),),
        "2": (CachePart(1, 0x1F, 50),),
        "3": (CachePart(1, 0x3E0, 50),),
    }


def test_a_tenant_over_two_sockets_has_a_part_of_both_and_three_on_one_get_thirds() -> None:
    """Of 11 parts three get 3 each; of 100 % 33, rounded down to a step of 10."""
    found = parts(TWO_SOCKETS, range(4), range(4, 6), range(6, 12))
    assert found == {
        "0": (CachePart(0, 0b111, 30),),
        "1": (CachePart(0, 0b111_000, 30),),
        "2": (CachePart(0, 0b111_000_000, 30), CachePart(1, 0x7FF, 100)),
    }


def test_bandwidth_is_never_below_the_least_of_the_hardware() -> None:
    coarse = msgspec.structs.replace(ONE_SOCKET, least_bandwidth_pct=40, bandwidth_step_pct=20)
    assert {part[0].bandwidth_pct for part in parts(coarse, [0], [1], [2]).values()} == {40}


def test_parts_that_hardware_fills_are_in_no_share_and_masks_have_no_gaps() -> None:
    """Two of the middle bits are taken: runs of 5 and 4 are left, so that each of three tenants gets 2 adjacent ones,
    and each of two gets 4."""
    used = msgspec.structs.replace(ONE_SOCKET, hardware_mask=0b000_0110_0000)
    assert [part[0].mask for part in parts(used, [0], [1], [2]).values()] == [0b11, 0b1100, 0b1_1000_0000]
    assert [part[0].mask for part in parts(used, [0], [1]).values()] == [0b1111, 0b111_1000_0000]
    assert (
        next(cache_notes(used))
        == "parts 60 of the last-level cache are in no allocation, because hardware also fills them"
    )


def test_bandwidth_that_is_not_given_in_percent_stays_shared_and_that_is_said() -> None:
    without = msgspec.structs.replace(ONE_SOCKET, least_bandwidth_pct=None)
    assert parts(without, [0], [1])["1"] == (CachePart(0, 0x3E0),)
    assert list(cache_notes(without)) == [
        "memory bandwidth is not divided: this kernel and processor do not accept percentages"
    ]
    assert [*cache_notes(ONE_SOCKET), *cache_notes(None)] == []


@pytest.mark.parametrize(
    ("changes", "tenants", "why"),
    [
        ({"problem": "not offered here"}, 1, "not offered here"),
        ({"closed": "/sys/fs/resctrl cannot be written"}, 1, "cannot be written"),
        ({"cache_mask": None, "caches": ()}, 1, "divides no last-level cache here"),
        ({}, 8, "each of 8 tenants needs a group, and 7 are left: the processor has 8, one is the root's, 0 are taken"),
        ({"groups": 5}, 3, "each of 3 tenants needs a group, and 2 are left"),
        ({"classes": 16}, 12, "cache 0 has 11 parts (7ff) for 12 tenants, each of which needs at least 1"),
        ({"least_cache_parts": 4}, 3, "cache 0 has 11 parts (7ff) for 3 tenants, each of which needs at least 4"),
        ({"caches": (LastLevelCache(0, (0, 1)),)}, 3, "CPUs 2 of device 2 are behind no cache that resctrl names"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(changes: dict[str, Any], tenants: int, why: str) -> None:
    with pytest.raises(IsolationError) as caught:
        parts(msgspec.structs.replace(ONE_SOCKET, **changes), *([cpu] for cpu in range(tenants)))
    assert why in str(caught.value)
    assert str(caught.value).endswith("(docs/isolation.md)") or "Use fewer tenants" in str(caught.value), "what to do"


@pytest.mark.parametrize("isolation", ["auto", "affinity", "none"])
def test_a_fence_without_groups_has_no_parts_of_caches(isolation: IsolationRequest) -> None:
    with pytest.raises(IsolationError, match="--cache-shares cannot be held"):
        require_cache_groups(Capabilities("v2", "6.1", True, {}), isolation)


def test_missing_isolation_has_its_exit_code() -> None:
    assert IsolationError("no resctrl").exit_code == 3


def test_as_many_tenants_as_there_are_groups_left() -> None:
    assert len(parts(ONE_SOCKET, *([cpu] for cpu in range(7)))) == 7

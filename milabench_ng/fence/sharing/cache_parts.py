"""Divides last-level caches and memory bandwidth among the tenants behind them (filesystems/resctrl). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from milabench_ng.model.errors import IsolationError
from milabench_ng.model.units import counted
from milabench_ng.node.cgroup_files import format_ids
from milabench_ng.node.resctrl import Resctrl
from milabench_ng.records.isolation import CachePart, Share

_WHOLE_PCT = 100
_NONE = "isolation: --cache-shares is not possible here"


def with_cache_parts(shares: Mapping[str, Share], offer: Resctrl) -> dict[str, Share]:
    """The shares, each with its parts of the caches that its CPUs are behind; they are by slot.

    The tenants behind a cache have equal, disjoint, contiguous parts of it; what is left over is nobody's. Raises
    IsolationError with the reason where that cannot be had.
    """
    why = next(_refusals(shares, offer), None)
    if why:
        raise IsolationError(f"{_NONE}: {why}. Without it, tenants share caches and bandwidth (docs/isolation.md)")
    parts: dict[str, list[CachePart]] = {slot: [] for slot in shares}
    for cache in offer.caches:
        behind = [slot for slot, share in shares.items() if not set(cache.cpus).isdisjoint(share.cpus)]
        if behind:
            bandwidth = _bandwidth(offer, len(behind))
            for slot, mask in zip(behind, _masks(offer, cache.id, len(behind)), strict=True):
                parts[slot].append(CachePart(cache.id, mask, bandwidth))
    return {slot: msgspec.structs.replace(share, cache=tuple(parts[slot])) for slot, share in shares.items()}


def cache_notes(offer: Resctrl | None) -> Iterator[str]:
    """What such a division leaves out; nothing where none is made."""
    if offer is None:
        return
    if offer.hardware_mask:
        yield (
            f"parts {offer.hardware_mask:x} of the last-level cache are in no allocation, because hardware "
            "also fills them"
        )
    if offer.least_bandwidth_pct is None:
        yield "memory bandwidth is not divided: this kernel and processor do not accept percentages"


def _refusals(shares: Mapping[str, Share], offer: Resctrl) -> Iterator[str]:
    why = offer.problem or offer.closed
    if why:
        yield why
    if not offer.cache_mask or not offer.caches:
        yield "resctrl divides no last-level cache here (with the mount option cdp, it is offered otherwise)"
    free = (offer.classes or 0) - 1 - offer.groups
    if len(shares) > free:
        yield (
            f"each of {counted(len(shares), 'tenant')} needs a group, and {max(free, 0)} are left: the processor has "
            f"{offer.classes or 0}, one is the root's, {offer.groups} are taken. Use fewer tenants, or remove groups"
        )
    known = {cpu for cache in offer.caches for cpu in cache.cpus}
    for slot, share in shares.items():
        if not known.issuperset(share.cpus):
            yield f"CPUs {format_ids(set(share.cpus) - known)} of device {slot} are behind no cache that resctrl names"


def _masks(offer: Resctrl, cache: int, count: int) -> list[int]:
    """``count`` equal runs of bits, as long as can be, from the lowest on: processors may refuse masks with gaps."""
    free = (offer.cache_mask or 0) & ~offer.hardware_mask
    stretches = list(_stretches(free))
    for length in range(free.bit_count() // count, offer.least_cache_parts - 1, -1):
        starts = [start + k * length for start, size in stretches for k in range(size // length)]
        if len(starts) >= count:
            return [(1 << length) - 1 << start for start in starts[:count]]
    raise IsolationError(
        f"{_NONE}: cache {cache} has {free.bit_count()} parts "
        f"({free:x}) for {count} tenants, each of which needs at least {offer.least_cache_parts}. Use fewer tenants"
    )


def _stretches(mask: int) -> Iterator[tuple[int, int]]:
    """The start and length of each run of ones, lowest first."""
    start = 0
    while mask >> start:
        length = 0
        while mask >> start + length & 1:
            length += 1
        if length:
            yield start, length
        start += length + 1


def _bandwidth(offer: Resctrl, count: int) -> int | None:
    """An equal part in percent, rounded down to a step of the hardware, and never below its least."""
    if offer.least_bandwidth_pct is None:
        return None
    step = offer.bandwidth_step_pct
    return max(offer.least_bandwidth_pct, _WHOLE_PCT // count // step * step)

"""Parts of last-level caches and of memory bandwidth: asked for, held by the kernel, equal and disjoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from milabench_ng.records.isolation import CachePart, CacheParts, Effective, Isolation, cache_text
from milabench_ng.records.manifest import Manifest
from milabench_ng.report.verification.evidence import Evidence


def cache_shares(evidence: Evidence) -> Iterator[str]:
    """Launches whose parts are not those of the run or were not held, and batches whose tenants had unfair ones."""
    for name, record in evidence.named():
        for slot, share in record.mnb.isolation.items() if record.success else ():
            reasons = (*_departing(slot, share, evidence.manifest), *_not_held(share))
            yield from (f"{name}: device {slot}: {why}" for why in reasons)
    yield from _unfair(evidence)


def _departing(slot: str, share: Isolation, manifest: Manifest) -> Iterator[str]:
    """Parts that are not those of the run, or not of the caches that its CPUs are behind."""
    asked, promised = share.requested.cache, manifest.shares[slot].cache if slot in manifest.shares else msgspec.UNSET
    if asked != promised:
        yield f"it asked for {_shown(asked)}, the run gives {_shown(promised)}"
    offer = manifest.fence.resctrl
    if offer is msgspec.UNSET:
        return
    own = {cache.id for cache in offer.caches if not set(cache.cpus).isdisjoint(share.requested.cpus)}
    if {part.cache for part in _listed(asked)} != own:
        yield f"it has CPUs behind caches {sorted(own)}, and asked for {_shown(asked)}"
    taken = [part for part in _listed(asked) if part.mask & offer.hardware_mask]
    if taken:
        yield f"it asked for {cache_text(tuple(taken))}, and hardware fills {offer.hardware_mask:x}"


def _not_held(share: Isolation) -> Iterator[str]:
    asked = _listed(share.requested.cache)
    for edge, held in (("entry", share.effective), ("end", share.effective_end)) if asked else ():
        if not set(asked) <= set(_held(held)):
            yield f"at its {edge} it held {_shown(_held(held))}, it asked for {_shown(asked)}"
        elif held is None or held.in_cache_group is not True:
            yield f"at its {edge} tasks of it were outside its group of resctrl"


def _unfair(evidence: Evidence) -> Iterator[str]:
    """Batches whose tenants had overlapping or unequal parts of the same cache, as the kernel held them."""
    for (number, _), kept in evidence.batches().items():
        behind: dict[int, list[tuple[str, CachePart]]] = defaultdict(list)
        for one in kept:
            for share in one.record.mnb.isolation.values():
                own = {part.cache for part in _listed(share.requested.cache)}
                for part in _held(share.effective):
                    if part.cache in own:
                        behind[part.cache].append((one.name, part))
        for cache, parts in behind.items():
            yield from (f"batch {number}: {why} of cache {cache}" for why in _of_one_cache(parts))


def _of_one_cache(parts: list[tuple[str, CachePart]]) -> Iterator[str]:
    taken = 0
    for name, part in parts:
        if part.mask & taken:
            yield f"{name} and another had the same parts ({part.mask & taken:x})"
        taken |= part.mask
    if len({(part.mask.bit_count(), part.bandwidth_pct) for _, part in parts}) > 1:
        yield "its tenants had unequal parts"


def _held(held: Effective | None) -> tuple[CachePart, ...]:
    return () if held is None else _listed(held.cache)


def _listed(parts: CacheParts) -> tuple[CachePart, ...]:
    return () if parts is msgspec.UNSET else parts


def _shown(parts: CacheParts) -> str:
    return cache_text(parts) or "no part of a cache"

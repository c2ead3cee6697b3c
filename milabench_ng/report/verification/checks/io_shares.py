"""I/O bandwidth that the profile gives a tenant: asked for, held by kernel or readers, and not exceeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from milabench_ng.grouping import grouped
from milabench_ng.profile import IoShare, Profile, name_of
from milabench_ng.records.isolation import IoEvidence, Isolation
from milabench_ng.records.record import Mnb
from milabench_ng.report.verification.checks.check_plan import read_stated
from milabench_ng.report.verification.checks.items import batches_of
from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.units import format_limit, parse_bytes_per_second

Transfer = Literal["read", "write"]
_TRANSFERS: tuple[Transfer, ...] = ("read", "write")
_DONE: dict[Transfer, str] = {"read": "read", "write": "wrote"}
_MORE = 1.1
"""How far a probe, or a launch, may be above its share: the kernel lets bursts through."""
_LESS = 1.5
"""How many times less a launch may read for an item under a limit: faster ones come to cached files sooner."""
_BURST_S = 2.0
"""Seconds' worth that the probe and bursts at the edges may add."""


def io_shares(evidence: Evidence) -> Iterator[str]:
    """Launches whose I/O share is not that of the profile, was not held, or was exceeded.

    What the command line changed, the rule on arguments tells.
    """
    yield from _few_bytes(evidence)
    stated = read_stated(evidence.manifest)
    if stated is None:
        return
    for name, record in evidence.named():
        for slot, share in record.mnb.isolation.items() if record.success else ():
            if not (share.io and share.io.override):
                wanted = _of_profile(stated, record.mnb)
                yield from (f"{name}: device {slot}: {why}" for why in _departing(record.mnb, share, wanted))


def _of_profile(stated: Profile, mnb: Mnb) -> IoShare:
    test = stated.tests.get(name_of(mnb.launch.test))
    return (test.io if test else None) or IoShare()


def _departing(mnb: Mnb, share: Isolation, wanted: IoShare) -> Iterator[str]:
    for what in _TRANSFERS:
        text: str | None = getattr(wanted, what)
        rate = None if text is None else parse_bytes_per_second(text, what)
        io = share.io
        held: int | None = getattr(io, f"{what}_bytes_per_s", None)
        if held != rate:
            yield f"its share may {what} {_shown(held)}, by the profile {_shown(rate)}"
        elif io is not None and rate is not None and io.method != "none":  # without a fence, nothing is held
            yield from _exceeded(io, what, rate)
            if io.method != "readers":
                yield from _not_held(share, io, what, rate)
                yield from _too_much(mnb, share, what, rate)


def _not_held(share: Isolation, io: IoEvidence, what: Transfer, rate: int) -> Iterator[str]:
    """A limit that the kernel holds is in the group at entry, and a probe met it."""
    entry = share.effective.io if share.effective else ()
    limits = [getattr(one, f"{what}_bytes_per_s") for one in entry if one.device == io.device]
    if limits != [rate]:
        yield f"its group may {what} {', '.join(map(_shown, limits)) or 'without limit'}, its share {_shown(rate)}"
    probed: float | None = getattr(io, f"probed_{what}_bytes_per_s")
    if probed is None and io.problem is None:
        yield f"no probe shows that its share of {_shown(rate)} to {what} was held, and nothing says why"


def _exceeded(io: IoEvidence, what: Transfer, rate: int) -> Iterator[str]:
    """What a probe and the data set's readers transferred, against the share."""
    rates = {"a probe": getattr(io, f"probed_{what}_bytes_per_s")}
    if what == "read":
        rates["its readers"] = io.reader_bytes_per_s
    for who, found in rates.items():
        if found is not None and found > rate * _MORE:
            yield f"{who} {_DONE[what]} {_shown(found)}, its share is {_shown(rate)}"


def _too_much(mnb: Mnb, share: Isolation, what: Transfer, rate: int) -> Iterator[str]:
    """What the kernel counted for the group, against the share over the time between the edges."""
    before, after = mnb.conditions.get("before"), mnb.conditions.get("after")
    total: int | None = getattr(share.usage, f"io_{what}_bytes", None)
    if total is None:
        yield f"it had a share of {_shown(rate)} to {what}, and nothing counted what it {_DONE[what]}"
    if before is None or after is None or total is None:
        return
    span_s = after.time_s - before.time_s
    if total > rate * (span_s + _BURST_S) * _MORE:
        yield f"it {_DONE[what]} {total / 1e9:.1f} GB in {span_s:.1f} s, its share is {_shown(rate)}"


def _few_bytes(evidence: Evidence) -> Iterator[str]:
    """Launches that read far less for an item under a limit than others of the same batches without one."""
    for launches in grouped(evidence.good, lambda kept: batches_of(kept.record.mnb)).values():
        found = [(kept, read) for kept in launches if (read := _bytes_per_item(kept.record.mnb)) is not None]
        usual = min((read for kept, read in found if not _is_limited(kept.record.mnb)), default=0.0)
        for kept, read in found:
            if _is_limited(kept.record.mnb) and read * _LESS < usual:
                yield f"{kept.name}: it read {read / 1e6:.3g} MB for an item, {usual / 1e6:.3g} MB without the limit"


def _is_limited(mnb: Mnb) -> bool:
    return any(share.io for share in mnb.isolation.values())


def _bytes_per_item(mnb: Mnb) -> float | None:
    """None unless the data set lay on the disk when it began, and its groups counted what they read."""
    read = [share.usage.io_read_bytes if share.usage else None for share in mnb.isolation.values()]
    items, cold = sum(rank.count for rank in mnb.ranks), mnb.data is not None and mnb.data.cache == "cold"
    return sum(one or 0 for one in read) / items if cold and items and None not in read else None


def _shown(rate: float | None) -> str:
    return "without limit" if rate is None else format_limit(rate)

"""Links of a GPU: whether they are as fast as they can be under load, and their errors."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.conditions.condition import Condition, Seen, held, risen
from milabench_ng.node.gpu_conditions import GpuLinks, GpuSettings


def links(seen: Seen) -> Iterator[Condition]:
    """PCIe and NVLink of each device."""
    before = seen.mnb.conditions.get("before")
    settings = before.settings.gpus if before is not None and before.settings is not None else {}
    for slot, uuid in seen.gpus.items():
        own = settings.get(seen.boards.get(uuid, uuid))
        if own is not None:
            yield from _pcie_speed(seen, slot, uuid, own)
        states = seen.states(uuid)
        first, last = (states[0].links, states[1].links) if states is not None else (None, None)
        if isinstance(first, GpuLinks) and isinstance(last, GpuLinks):
            yield from _errors(slot, first, last, seen.between_s)
            yield from _down(seen, slot, first, last)


def _pcie_speed(seen: Seen, slot: str, uuid: str, own: GpuSettings) -> Iterator[Condition]:
    """A link saves power when it is idle, so the fastest sample of the window counts."""
    maxima = {"generation": own.max_pcie_generation, "width": own.max_pcie_width}
    for what, most in maxima.items():
        sampled = seen.sampled(uuid).get(f"pcie_{what}")
        if sampled is not None and isinstance(most, int):
            slow = sampled.max < most
            yield Condition(kind="PCIe link", slot=slot, what=what, value=sampled.max, limit=most, beyond=slow)


def _errors(slot: str, first: GpuLinks, last: GpuLinks, seconds: float) -> Iterator[Condition]:
    replays, fatal = risen(first.pcie_replays, last.pcie_replays), risen(first.pcie_fatal, last.pcie_fatal)
    crc = risen(first.nvlink_crc, last.nvlink_crc)
    again = [risen(first.nvlink_replays, last.nvlink_replays), risen(first.nvlink_recoveries, last.nvlink_recoveries)]
    known = [count for count in again if count is not None]
    if replays is not None and seconds > 0:
        yield held("PCIe replays", replays / seconds * 60, slot)
    if fatal is not None:
        yield held("PCIe fatal errors", fatal, slot)
    if known:
        yield held("NVLink errors", sum(known), slot)
    if crc is not None and seconds > 0:
        yield held("NVLink CRC errors", crc / seconds, slot)


def _down(seen: Seen, slot: str, first: GpuLinks, last: GpuLinks) -> Iterator[Condition]:
    """Fewer than before, or than other GPUs of the node: one without any is not connected, and not compared."""
    after = seen.mnb.conditions.get("after")
    others = [state.links for state in after.gpus.values()] if after is not None and last.nvlinks else []
    compared = [other.nvlinks or 0 for other in others if isinstance(other, GpuLinks)]
    most = max([first.nvlinks or 0, *compared])
    if last.nvlinks is not None and most:
        yield Condition(kind="NVLink down", slot=slot, value=last.nvlinks, limit=most, beyond=last.nvlinks < most)

"""Clocks: what held them down in the window, and whether one device is slower than those that did the same."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.conditions.condition import Condition, Seen, held
from milabench_ng.node.gpu_conditions import FAULTS, held_down
from milabench_ng.records.record import Mnb
from milabench_ng.telemetry.messages import telemetry_key

_BUSY_PCT = 90.0
"""A GPU that is less busy sets its clock as it likes."""


def clocks(seen: Seen) -> Iterator[Condition]:
    """Throttling, the power cap, and the distance from the fastest."""
    fastest = max((mhz for peer in seen.peers for mhz in _busy_clocks(peer).values()), default=0.0)
    own = _busy_clocks(seen.mnb)
    for slot, uuid in seen.gpus.items():
        shares = held_down(seen.sampled(uuid))
        faults = {reason: shares[reason] for reason in FAULTS if reason in shares}
        if faults:
            reason = max(faults, key=lambda name: faults[name])
            yield held("throttled", faults[reason], slot, reason)
        if "sw_power_cap" in shares:
            yield held("power cap", shares["sw_power_cap"], slot)
        if uuid in own and len(seen.peers) > 1 and fastest:
            yield held("slow clock", 1 - own[uuid] / fastest, slot)


def _busy_clocks(mnb: Mnb) -> dict[str, float]:
    """The mean clock of the cores in the window, by UUID, of whole GPUs that worked all the time."""
    sampled = {
        one.uuid: mnb.telemetry.get(telemetry_key("gpu", one.uuid), {})
        for one in mnb.devices
        if one.kind == "gpu" and one.uuid
    }
    return {
        uuid: found["sm_clock_mhz"].mean
        for uuid, found in sampled.items()
        if found.keys() >= {"sm_clock_mhz", "utilization_pct"} and found["utilization_pct"].mean >= _BUSY_PCT
    }

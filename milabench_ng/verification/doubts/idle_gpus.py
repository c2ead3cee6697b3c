"""GPUs that hardly worked while items were counted: utilisation and energy of an item, against other launches."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import msgspec

from milabench_ng.analysis.scoring.other_machine import ON_THE_GPU
from milabench_ng.records.record import Mnb
from milabench_ng.telemetry.messages import telemetry_key
from milabench_ng.verification.doubts.doubt import Doubt
from milabench_ng.verification.evidence import Evidence

_LESS_ENERGY = 1.5
"""How many times less energy an item may take than in the median launch of its test: honest ones differ by 1.3."""
_LESS_THAN_KNOWN = 2.0
"""The same against the measured baseline of the same GPU: libraries get better."""
_BUSY, _LESS_BUSY = 30.0, 3.0
"""Where the median launch is busy for so many percent of the time, none may be so many times less busy."""
_IDLE = 5.0
"""Percent: who counts items of a GPU-bound test is busier; honest ones are for 40."""


class _Work(msgspec.Struct, frozen=True):
    """What the GPUs of a launch did in its window: joules an item, and percent of the time busy."""

    name: str
    joules: float
    busy: float | None


def _idle(evidence: Evidence) -> Iterator[str]:
    measured: dict[str, list[_Work]] = {}
    for kept in evidence.good:
        found = _work(kept.name, kept.record.mnb) if kept.record.mnb.launch.measured else None
        if found is not None:
            measured.setdefault(kept.record.mnb.label, []).append(found)
    for label, launches in measured.items():
        summary = evidence.summary.tests.get(label)
        bound = (summary.work.bound if summary else None) in ON_THE_GPU
        yield from (*_less_energy(launches), *_less_busy(launches, bound=bound))
        if bound:
            yield from _less_than_known(evidence, label, launches)


def _work(name: str, mnb: Mnb) -> _Work | None:
    """None without a window, or without a power of each GPU."""
    window = mnb.window
    sources = [telemetry_key("gpu", device.uuid) for device in mnb.devices if device.uuid is not None]
    known = [mnb.telemetry[source] for source in sources if source in mnb.telemetry]
    powers = [one["power_w"].mean for one in known if "power_w" in one]
    if window is None or not sources or len(powers) < len(sources):
        return None
    items = sum(window.part(row) * row.count for rank in mnb.ranks for row in rank.slices)
    busy = [one["utilization_pct"].mean for one in known if "utilization_pct" in one]
    seconds = window.end_s - window.start_s
    return _Work(name, sum(powers) * seconds / items, min(busy, default=None)) if items > 0 else None


def _less_energy(launches: list[_Work]) -> Iterator[str]:
    usual = median(one.joules for one in launches)
    for one in launches:
        if one.joules * _LESS_ENERGY < usual:
            yield f"{one.name}: an item took {one.joules:.4g} J, but {usual:.4g} J in other launches of its test"


def _less_busy(launches: list[_Work], *, bound: bool) -> Iterator[str]:
    known = [(one.name, one.busy) for one in launches if one.busy is not None]
    usual = median(busy for _, busy in known) if known else 0.0
    for name, busy in known:
        if bound and busy < _IDLE:
            yield f"{name}: its GPU was busy for only {busy:.1f}% of the window, though the test is GPU-bound"
        elif usual >= _BUSY and busy * _LESS_BUSY < usual:
            yield f"{name}: its GPU was busy for {busy:.1f}% of the window, others of its test for {usual:.1f}%"


def _less_than_known(evidence: Evidence, label: str, launches: list[_Work]) -> Iterator[str]:
    usual = median(one.joules for one in launches)
    for known, other in evidence.known_rows(label):
        if other.train is None or not other.power_w:
            continue
        joules = other.power_w / other.train.mean if other.train.mean else 0.0  # both of one device
        if usual * _LESS_THAN_KNOWN < joules:
            yield f"{label}: an item took {usual:.4g} J, but {joules:.4g} J on {known.provenance.hardware}"


DOUBT = Doubt(
    name="idle-gpus",
    title="GPUs that were nearly idle for their reported rate",
    ask="ask for the log of the launch, and for a witnessed run",
    look=_idle,
)

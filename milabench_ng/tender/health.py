"""Whether a node works as it did, or as others of its kind do. Pure.

Nothing is computed here: a node is held against its baseline as a delivery is against a bid (`acceptance`), and its
devices against each other (`slow_devices`). This says only what follows for a health check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.scoring.other_machine import ON_THE_GPU
from milabench_ng.analysis.scoring.slow_devices import Straggler, side_by_side
from milabench_ng.analysis.statistics.intervals import RANKED_FROM
from milabench_ng.analysis.summary.summary import LEFT, Summary
from milabench_ng.model.units import counted
from milabench_ng.records.marks import MarkKind
from milabench_ng.tender.acceptance import Acceptance, accept

HEALTH_SCHEMA = 1
LEAST_ON_GPUS = 0.95
LEAST_ON_CPUS = 0.75
"""How much of the baseline is healthy, unless the user says otherwise.

Where the days of a healthy node differ as declared (`other_machine`: 0.5 % in tests that GPUs bound, 5 % in others),
of 400 made-up checks of 8 GPUs 0.5 % are called slow and none is not decided; of 400 of one GPU, 0 and 0; of 400 of two
CPU partitions, 0 and 0.8 %. Of nodes that are 10 % slower on GPUs, 99.8 % are called slow, and of those that are 45 %
slower on CPUs, 99.8 %: tests/report/test_health.py.
"""
DISTURBED: frozenset[MarkKind] = frozenset(
    {
        "foreign CPU load",
        "GPU used by others",
        "CPUs shared with another run",
        "CPU quota",
        "held back by a CPU quota",
        "orchestrator paused",
        "clock set",
        "outlived its fence",
        "unequal page cache",
    }
)
"""Marks of what others did meanwhile: such a check says nothing of the node, but which devices it has."""
_EXPECTED: frozenset[MarkKind] = frozenset({"window shortened", "throttled"})
"""Marks that every check has, and those that say why a node is slow."""
HealthVerdict = Literal["healthy", "slow", "faulty", "not decided"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found; docs/reference/check.md explains the keys."""

    verdict: HealthVerdict
    devices: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    ratio: float | None = None
    """Over the baseline, over the tests that GPUs bound; where there are none, over all."""
    low: float | None = None
    """One-sided 95 % bound, as ``high``."""
    high: float | None = None
    least: float

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 slow or faulty, 3 not decided."""
        return {"healthy": 0, "slow": 1, "faulty": 1, "not decided": 3}[self.verdict]


def health(found: Summary, baseline: Summary | None, least: float | None = None) -> Health:
    """The verdict on the check ``found``; ``least``: how much of ``baseline`` is healthy.

    What others do meanwhile may make launches slow or too short; it takes no device away.
    """
    asked = least or (LEAST_ON_CPUS if on_cpus(found) else LEAST_ON_GPUS)
    made = _held_against(found, baseline, asked) if baseline else None
    open_ = tuple(_open(found, baseline, made))
    score = made.score if made else None
    told = Health(
        verdict="not decided" if open_ else "healthy",
        reasons=open_,
        ratio=score.ratio if score else None,
        low=score.low if score else None,
        high=score.high if score else None,
        least=asked,
    )
    if baseline is not None and found.distinct_devices < baseline.distinct_devices:
        devices = counted(baseline.distinct_devices, "device")
        why = f"the baseline has {devices}, this node has {found.distinct_devices}"
        return msgspec.structs.replace(told, verdict="faulty", reasons=(why,))
    if _kinds(found) & DISTURBED:
        return told
    if excess := failure_rate(found).excess:
        failed = tuple(_failed(found))
        return _named(told, "faulty", (excess,), [device for device, _ in failed], [test for _, test in failed])
    gpus = side_by_side(found)
    slow = (gpus.overall or gpus.stragglers) if gpus else ()
    below = [part.name for part in (made.tests if made else ()) if part.verdict == "breaks"]
    if not below and score and score.verdict == "breaks":
        below = ["all tests together"]
    if slow or below:
        reasons = (*map(_behind, slow), *([f"below {asked:.0%} of the baseline: {', '.join(below)}"] if below else ()))
        tests = [one.test for one in slow if one.test] + [name for name in below if name in found.tests]
        return _named(told, "slow", reasons, [one.device for one in slow], tests)
    return told


def _named(
    told: Health, verdict: HealthVerdict, reasons: tuple[str, ...], devices: Sequence[str], tests: Sequence[str]
) -> Health:
    return msgspec.structs.replace(
        told,
        verdict=verdict,
        reasons=reasons,
        devices=tuple(sorted(set(devices))),
        tests=tuple(dict.fromkeys(tests)),
    )


def on_cpus(summary: Summary) -> bool:
    """Whether its tenants had parts of the CPUs, and no GPU."""
    return set(summary.models.values()) <= {"CPU"}


def why_not_stored(found: Summary) -> Iterator[str]:
    """Why a check is no baseline: it failed in part, was disturbed, or has too few repeats."""
    told = {mark.kind: mark.sentence for row in found.tests.values() for mark in row.marks}
    yield from (told[kind] for kind in sorted(told.keys() & DISTURBED))
    yield from (f"{test} failed on device {device}" for device, test in dict.fromkeys(_failed(found)))
    repeats = min(len(row.repeats) for row in found.tests.values())
    if repeats < RANKED_FROM:
        yield f"only {counted(repeats, 'repeat')} in the time; a verdict needs at least {RANKED_FROM}"


def _held_against(found: Summary, baseline: Summary, least: float) -> Acceptance:
    """As a delivery against a bid.

    The score of a node with GPUs is over the tests that these bound: what the host does on another day would hide them.
    Its other tests count alone. Without GPUs, the host bounds all tests.
    """
    before, now = (_bound_by_host(one) if on_cpus(found) else one for one in (baseline, found))
    on_gpus = [label for label, row in before.tests.items() if row.work.bound in ON_THE_GPU]
    return accept(before, now, {found.suite: dict.fromkeys(on_gpus or before.tests, 1.0)}, least)


def _bound_by_host(summary: Summary) -> Summary:
    tests = {label: row.bound_by("cpu") for label, row in summary.tests.items()}
    return msgspec.structs.replace(summary, tests=tests)


def _failed(found: Summary) -> Iterator[tuple[str, str]]:
    """Device and test of each launch that failed by itself."""
    for label, row in found.tests.items():
        for one in row.failed:
            if one.cause not in LEFT:
                yield one.job_id.partition(".")[2].partition("#")[0], label


def _open(found: Summary, baseline: Summary | None, made: Acceptance | None) -> Iterator[str]:
    """Why nothing is decided."""
    if baseline is None or made is None:
        yield "there is no baseline of this kind of node: mnb check --store makes one"
        return
    yield from why_not_stored(found)
    other = (_kinds(found) ^ _kinds(baseline)) - _EXPECTED - DISTURBED
    if other:
        yield f"check and baseline differ in marks: {', '.join(sorted(other))}"
    yield from (f"{test.name}: {test.why}" for test in made.tests if test.why)
    if made.score.verdict == "inconclusive":
        yield made.score.why or f"{made.score.ratio:.1%} of the baseline may be below {made.guarantee:.0%} or above it"


def _kinds(summary: Summary) -> frozenset[MarkKind]:
    return frozenset(mark.kind for row in summary.tests.values() for mark in row.marks)


def _behind(one: Straggler) -> str:
    return f"device {one.device} is {-one.effect_pct:.1f}% behind the others{f' in {one.test}' if one.test else ''}"

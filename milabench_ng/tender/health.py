"""Whether a node works as it did, or as others of its kind do. Pure.

Nothing is computed here: a node is held against its baseline as a delivery is against a bid (`acceptance`), and its
devices against each other (`slow_devices`). This says only what follows for a health check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.scoring.other_machine import ON_THE_GPU
from milabench_ng.analysis.scoring.slow_devices import Straggler, side_by_side
from milabench_ng.analysis.summary.summary import LEFT, Summary
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
        "CPUs shared with another run",
        "CPU quota",
        "held back by a CPU quota",
        "orchestrator paused",
        "clock set",
        "outlived its fence",
        "unequal page cache",
    }
)
"""Marks of what others did meanwhile: such a check says nothing of the node."""
_EXPECTED: frozenset[MarkKind] = frozenset({"window shortened", "throttled"})
"""Marks that every check has, and those that say why a node is slow."""
_WORDS = {"bid with": "baseline with", "delivered with": "here", ", on the delivered node": ""}
_OF_A_NODE = re.compile("|".join(_WORDS))
"""What an acceptance calls otherwise."""

HealthVerdict = Literal["healthy", "slow", "faulty", "not decided"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found: the line of JSON that `mnb check --json` prints, without what the command adds."""

    verdict: HealthVerdict
    devices: tuple[str, ...] = ()
    """The devices that are slow or faulty, by index; empty if that holds for the node, or for none."""
    tests: tuple[str, ...] = ()
    """The tests that show it; empty for all."""
    reasons: tuple[str, ...] = ()
    """Why it is not healthy."""
    ratio: float | None = None
    """Over the baseline, over the tests that GPUs bound; where there are none, over all."""
    low: float | None = None
    """One-sided 95 % bound, as ``high``."""
    high: float | None = None
    least: float
    """How much of the baseline is healthy."""

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 slow or faulty, 3 not decided."""
        return {"healthy": 0, "slow": 1, "faulty": 1, "not decided": 3}[self.verdict]


def health(found: Summary, baseline: Summary | None, least: float | None = None) -> Health:
    """The verdict on the check ``found``; ``least``: how much of ``baseline`` is healthy."""
    asked = least or (LEAST_ON_CPUS if on_cpus(found) else LEAST_ON_GPUS)
    made = _held_against(found, baseline, asked) if baseline else None
    if faults := tuple(_faults(found, made)):
        failed = tuple(dict.fromkeys(_failed(found)))
        return _verdict("faulty", made, asked, faults, [device for device, _ in failed], [test for _, test in failed])
    gpus = side_by_side(found)
    slow: Sequence[Straggler] = (gpus.overall or gpus.stragglers) if gpus else ()
    broken = [part.name for part in made.tests if part.verdict == "breaks"] if made else []
    below = made is not None and (bool(broken) or made.score.verdict == "breaks")
    open_ = tuple(_open(found, baseline, made))
    disturbed = _kinds(found) & DISTURBED
    if (slow or below) and not disturbed:
        behind = [one.test for one in slow if one.test]
        named = ", ".join(broken) or "all tests together"
        reasons = (*map(_behind, slow), *([f"below {asked:.0%} of the baseline: {named}"] if below else ()))
        return _verdict("slow", made, asked, reasons, [one.device for one in slow], [*behind, *broken])
    if open_:
        return _verdict("not decided", made, asked, open_)
    return _verdict("healthy", made, asked)


def on_cpus(summary: Summary) -> bool:
    """Whether its tenants had parts of the CPUs, and no GPU."""
    return set(summary.models.values()) <= {"CPU"}


def why_not_stored(found: Summary) -> tuple[str, ...]:
    """Why a check is no baseline: it failed in part, or was disturbed."""
    failed = [f"{test} failed on device {device}" for device, test in dict.fromkeys(_failed(found))]
    return (*failed, *_disturbances(found), *_few(found))


def _verdict(
    verdict: HealthVerdict,
    made: Acceptance | None,
    least: float,
    reasons: Sequence[str] = (),
    devices: Sequence[str] = (),
    tests: Sequence[str] = (),
) -> Health:
    score = made.score if made else None
    return Health(
        verdict=verdict,
        devices=tuple(sorted(set(devices))),
        tests=tuple(dict.fromkeys(tests)),
        reasons=tuple(dict.fromkeys(reasons)),
        ratio=score.ratio if score else None,
        low=score.low if score else None,
        high=score.high if score else None,
        least=least,
    )


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


def _faults(found: Summary, made: Acceptance | None) -> Iterator[str]:
    """More failures than chance explains, or fewer devices than there were."""
    if made:
        yield from (_OF_A_NODE.sub(lambda found: _WORDS[found[0]], reason) for reason in made.reasons)
    elif failure_rate(found).excess:
        yield failure_rate(found).excess


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
    yield from _disturbances(found)
    other = (_kinds(found) ^ _kinds(baseline)) - _EXPECTED - DISTURBED
    if other:
        yield f"check and baseline differ in marks: {', '.join(sorted(other))}"
    yield from (f"{test} failed on device {device}" for device, test in _failed(found))
    yield from _few(found)
    yield from (f"{test.name}: {test.why}" for test in made.tests if test.why)
    if made.score.verdict == "inconclusive":
        yield made.score.why or f"{made.score.ratio:.1%} of the baseline may be below {made.guarantee:.0%} or above it"


def _few(found: Summary) -> Iterator[str]:
    if found.interrupted or any(row.missing for row in found.tests.values()):
        yield "the check ended before all its launches were tried"


def _kinds(summary: Summary) -> frozenset[MarkKind]:
    return frozenset(mark.kind for row in summary.tests.values() for mark in row.marks)


def _disturbances(found: Summary) -> Iterator[str]:
    told = {mark.kind: mark.sentence for row in found.tests.values() for mark in row.marks}
    yield from (told[kind] for kind in sorted(told.keys() & DISTURBED))


def _behind(one: Straggler) -> str:
    return f"device {one.device} is {-one.effect_pct:.1f} % behind the others{f' in {one.test}' if one.test else ''}"

"""A result folder as a baseline: its statistics, with their full provenance. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from milabench_ng.analysis.scoring.score import Score
from milabench_ng.analysis.summary.marked import count_marks
from milabench_ng.analysis.summary.summary import Origin, Summary, TestSummary
from milabench_ng.model.catalogue import Bound
from milabench_ng.model.errors import InputError
from milabench_ng.model.similar import meant_or_all
from milabench_ng.model.units import counted


def shortfalls(summary: Summary, scores: Mapping[str, Score]) -> tuple[str, ...]:
    """Why a summary is a poor baseline; empty for a good one. ``scores``: by suite."""
    found = [why for suite, score in scores.items() for why in _of_score(suite, score, len(scores))]
    if summary.failures:
        found.append(f"{summary.failures} of {summary.launches} launches failed")
    if summary.isolation != "full":
        found.append(f"isolation is {summary.isolation or 'not recorded'}, not full")
    found += [f"marked: {mark.counted(len(summary.tests))}" for mark in count_marks(summary.tests)]
    if summary.going_on:
        found.append("the run is still in progress")
    return tuple(found)


def _of_score(suite: str, score: Score, suites: int) -> Iterator[str]:
    if score.status != "complete":
        why = f": {', '.join((*score.missing, *score.omitted))}" if score.missing or score.omitted else ""
        yield f"the score{f' of {suite}' if suites > 1 else ''} is {score.status}{why}"


def as_baseline(summary: Summary, lacking: tuple[str, ...], said: Sequence[str] = ()) -> Summary:
    """``summary`` without individual launches and with complete provenance: ``lacking`` and ``said`` become notes."""
    counts = sorted({len(row.repeats) for row in summary.tests.values()})
    repeats = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    facts = [f"{counted(summary.devices, 'tenant')}, isolation {_tiers(summary)}"]
    facts.append(f"repeats: {repeats}; sessions: {summary.sessions}")
    facts += said
    facts += [f"not as a baseline should be: {each}" for each in lacking]
    provenance = msgspec.structs.replace(summary.provenance, notes=(*summary.provenance.notes, *facts))
    return msgspec.structs.replace(
        summary,
        provenance=provenance,
        tests={label: msgspec.structs.replace(row, launches={}, flags=()) for label, row in summary.tests.items()},
    )


def measured_again(summary: Summary, again: Summary) -> Summary:
    """``summary`` with rows of ``again``, a run of single tests on such a node: they replace rows or add left-out ones.

    Raises InputError if the suite, the node, the software, a test or its options differ.
    """
    source = again.provenance.source
    for what, (then, now) in _sides(summary, again).items():
        if then != now:
            raise InputError(
                f"--again {source}: {what} was {now!r} there and is {then!r} in the first folder. Name a run of the "
                "same node and software"
            )
    for label, row in again.tests.items():
        _refuse_unlike(label, row, summary, again)
    origin = Origin(kind="measured", source=source, caveat="run without the other tests")
    rows = {label: msgspec.structs.replace(row, origin=origin) for label, row in again.tests.items()}
    note = f"{', '.join(rows)}: run without the other tests, {source}"
    provenance = msgspec.structs.replace(summary.provenance, notes=(*summary.provenance.notes, note))
    several = summary.suites or again.suites
    return msgspec.structs.replace(
        summary,
        suites=tuple(sorted({*summary.known_suites, *again.known_suites})) if several else (),
        provenance=provenance,
        sessions=summary.sessions + again.sessions,
        starts=summary.starts + again.starts,
        omitted=tuple(label for label in summary.omitted if label not in rows),
        unplanned={label: why for label, why in summary.unplanned.items() if label not in rows},
        tests={**summary.tests, **rows},
        going_on=summary.going_on or again.going_on,
        notes=(*summary.notes, *again.notes),
        problems=(*summary.problems, *again.problems),
    )


def _refuse_unlike(label: str, row: TestSummary, summary: Summary, again: Summary) -> None:
    """A row replaces one of the same options; it is added where the first folder left it out of the same profile."""
    source = again.provenance.source
    if label in summary.tests:
        ran, first = ((one.work, one.work.data, one.devices, one.read_limits) for one in (row, summary.tests[label]))
        if ran != first:
            raise InputError(
                f"--again {source}: {label} ran with other options, data, precision or limits than in the first "
                "folder. "
                "Run it again with the same"
            )
    elif label not in summary.omitted and label not in summary.unplanned:
        raise InputError(f"--again {source}: the first folder has no test {label!r}. Name a run of its profile")
    elif summary.profile_sha256 != again.profile_sha256:
        raise InputError(
            f"--again {source}: {label} was left out of the first folder, whose profile is another one. Name a run of "
            "its profile"
        )


def _sides(summary: Summary, again: Summary) -> dict[str, tuple[object, object]]:
    """Both values of everything that must be equal, by name."""
    one, other = summary.provenance, again.provenance
    facts = {**one.node, **one.software}, {**other.node, **other.software}
    return {
        "the suite": (summary.suite, again.suite),
        "the hardware": (one.hardware, other.hardware),
        "the number of tenants": (summary.devices, again.devices),
        **{name: (facts[0].get(name), facts[1].get(name)) for name in sorted({*facts[0], *facts[1]})},
    }


def rebound(summary: Summary, bounds: Mapping[str, Bound]) -> Summary:
    """``summary`` with the bounds of its tests corrected, by label, as measurements showed; adds notes.

    Raises InputError for an unknown test.
    """
    unknown = [label for label in bounds if label not in summary.tests]
    if unknown:
        raise InputError(f"--bound: no test {unknown[0]!r}{meant_or_all(unknown[0], summary.tests)}")
    notes = [f"{label}: bound by {now}, run as {summary.tests[label].work.bound}" for label, now in bounds.items()]
    provenance = msgspec.structs.replace(summary.provenance, notes=(*summary.provenance.notes, *notes))
    changed = {label: summary.tests[label].bound_by(now) for label, now in bounds.items()}
    return msgspec.structs.replace(summary, provenance=provenance, tests={**summary.tests, **changed})


def _tiers(summary: Summary) -> str:
    return ", ".join(dict.fromkeys(tier for row in summary.tests.values() for tier in row.tiers)) or "not recorded"

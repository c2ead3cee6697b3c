"""What two results do not have in common, and which of it makes a ratio meaningless. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from milabench_ng.report.launches import weakest_tier
from milabench_ng.report.summary import Summary, TestSummary

_FREE_OPTIONS = frozenset({"max_count", "seed", "sample_duration"})
"""How long a launch works and from which numbers it starts: neither changes what an item is."""
_PACE = ("torch", "cuda", "cudnn")
"""What a change of the first number of makes another computation of the same test."""
_HOW_ONLY = frozenset({"workers"})
"""Options that change how the work is done, not what is computed."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that differs."""

    what: str
    run: str
    baseline: str
    tests: tuple[str, ...] = ()
    """The rows that it holds for; empty for the whole run."""
    meaningless: bool = False
    """Whether the ratio of these rows says nothing, so that it is not shown."""


def differences(run: Summary, baseline: Summary) -> tuple[Difference, ...]:
    """Of the whole runs, then of the tests that both have; what either side does not record is no difference."""
    return (*_of_runs(run, baseline), *_merged(_of_tests(run, baseline)))


def _of_runs(run: Summary, baseline: Summary) -> Iterator[Difference]:
    ours, theirs = run.provenance.software, baseline.provenance.software
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name] != theirs[name]:
            yield Difference(what=name, run=ours[name], baseline=theirs[name])
    if run.devices != baseline.devices:
        yield Difference(what="devices", run=str(run.devices), baseline=str(baseline.devices))
    mine, other = _tier(run), _tier(baseline)
    if mine and other and mine != other:
        yield Difference(what="isolation", run=mine, baseline=other)
    if run.profile_sha256 and baseline.profile_sha256 and set(run.profile_sha256) != set(baseline.profile_sha256):
        short = [", ".join(sha[:12] for sha in side) for side in (run.profile_sha256, baseline.profile_sha256)]
        yield Difference(what="profile", run=short[0], baseline=short[1])


def other_generation(run: Mapping[str, str], baseline: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The packages that set the pace and differ in their first number, with both versions."""
    known = [name for name in _PACE if name in run and name in baseline]
    return [
        (name, run[name], baseline[name])
        for name in known
        if run[name].partition(".")[0] != baseline[name].partition(".")[0]
    ]


def _tier(summary: Summary) -> str | None:
    tiers = [tier for row in summary.tests.values() for tier in row.tiers]
    return weakest_tier(tiers) if tiers else None


def _of_tests(run: Summary, baseline: Summary) -> Iterator[Difference]:
    for label, row in run.tests.items():
        other = baseline.tests.get(label)
        if other is None:
            continue
        for what, ours, theirs, meaningless in _aspects(row, other):
            if ours and theirs and ours != theirs:
                yield Difference(what=what, run=ours, baseline=theirs, tests=(label,), meaningless=meaningless)


def _aspects(run: TestSummary, base: TestSummary) -> Iterator[tuple[str, str, str, bool]]:
    """What is compared, its value on both sides (empty where it is not known), and whether a difference is fatal."""
    if run.classic_factor is not None and base.classic_factor is not None:
        yield "unit", run.unit, base.unit, True
    yield "precision", _joined(run.precision), _joined(base.precision), True
    yield "data set", _joined(at.name for at in run.data), _joined(at.name for at in base.data), True
    scales = [_joined(f"{at.scale:g}" for at in row.data) for row in (run, base)]
    yield "data scale", scales[0], scales[1], True
    yield "data cache", _joined(at.cache for at in run.data), _joined(at.cache for at in base.data), run.bound == "io"
    yield "data kind", _joined(at.kind for at in run.data), _joined(at.kind for at in base.data), False
    if run.scheme == base.scheme == "per-gpu":
        yield "tenants", str(run.devices), str(base.devices), False
    for name in sorted(run.options.keys() & base.options.keys() - _FREE_OPTIONS):
        yield f"option {name}", str(run.options[name]), str(base.options[name]), name not in _HOW_ONLY


def _joined(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def _merged(found: Iterable[Difference]) -> list[Difference]:
    """The same difference of several tests as one."""
    merged: dict[tuple[str, str, str], Difference] = {}
    for one in found:
        key = (one.what, one.run, one.baseline)
        known = merged.get(key)
        merged[key] = msgspec.structs.replace(known, tests=known.tests + one.tests) if known else one
    return list(merged.values())

"""The differences between two results, and which of them make a ratio meaningless. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from milabench_ng.analysis.launch.host_paces import PACE_UNIT, Paces, differ
from milabench_ng.analysis.summary.summary import Summary, TestSummary, flag_word
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.grouping import grouped
from milabench_ng.model.units import format_limit
from milabench_ng.records.isolation import weakest_tier
from milabench_ng.records.marks import Mark
from milabench_ng.records.work import AS_TODAY, OTHER, Aspect, WorkDifference, differing, joined, sides

_PACE = ("torch", "cuda", "cudnn")
"""Packages whose major version, if changed, makes the same test a different computation."""
_INSTANCE = re.compile(r" MIG ((?:\d+c\.)?\d+g)\.")
"""In the name of an instance of MIG, its compute slices."""


def differences(run: Summary, baseline: Summary) -> tuple[WorkDifference, ...]:
    """Differences between the whole runs, then between the tests that both have.

    A run-level value that is not recorded is not a difference. A value that only one of two rows records is: whether
    the work was the same is unknown, and the ratio does not count.
    """
    return (*differing(_of_runs(run, baseline)), *_merged(_of_tests(run, baseline)))


def both_rows(label: str, run: Summary, other: Summary) -> tuple[TestSummary, TestSummary]:
    """The rows of a test that both have; a measured one whose version named no workload did that of the other row."""
    return _named(label, run, other), _named(label, other, run)


def _named(label: str, own: Summary, other: Summary) -> TestSummary:
    row, workload = own.tests[label], other.tests[label].work.workload
    if row.work.workload or not row.work.options or own.origin(label) != "measured":
        return row
    work = msgspec.structs.replace(row.work, workload=workload).completed(read_builtin().get(workload))
    return msgspec.structs.replace(row, work=work)


def _of_runs(run: Summary, baseline: Summary) -> Iterator[Aspect]:
    ours, theirs = run.provenance.software, baseline.provenance.software
    for name in sorted(ours.keys() & theirs.keys()):
        yield name, ours[name], theirs[name], "counted"
    yield "devices", str(run.devices), str(baseline.devices), "counted"
    if run.host_pace is not None and baseline.host_pace is not None:
        yield from _of_hosts(run.host_pace, baseline.host_pace)
    if run.profile_sha256 and baseline.profile_sha256 and set(run.profile_sha256) != set(baseline.profile_sha256):
        shas = sides(run, baseline, lambda side: ", ".join(sha[:12] for sha in side.profile_sha256))
        yield "profile", *shas, "counted"


def _of_hosts(run: Paces, baseline: Paces) -> Iterator[Aspect]:
    """The pace of the cores, which feed the GPUs."""
    yield "computation of the CPU speed check", run.library, baseline.library, "counted"
    if run.library == baseline.library and differ(run.run.median, baseline.run.median):
        yield "CPU speed check", *sides(run, baseline, lambda side: f"{side.run.median:.1f} {PACE_UNIT}"), "counted"


def other_generation(run: Mapping[str, str], baseline: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The pace-setting packages whose major versions differ, with both versions."""
    return [
        (name, run[name], baseline[name])
        for name in _PACE
        if name in run and name in baseline and run[name].partition(".")[0] != baseline[name].partition(".")[0]
    ]


def _of_tests(run: Summary, baseline: Summary) -> Iterator[WorkDifference]:
    cut: Aspect = ("GPUs", part_of_gpu(run), part_of_gpu(baseline), "suppressed")
    for label in (label for label in run.tests if label in baseline.tests):
        row, other = both_rows(label, run, baseline)
        yield from differing([cut, *_conditions(row, other)], label)
        for one in row.work.differences(other.work):
            yield msgspec.structs.replace(one, tests=(label,))
        yield from differing(_of_departures(row, other), label)


def part_of_gpu(summary: Summary) -> str:
    """How GPUs are cut into devices: an instance of MIG is no GPU, and seven of one are no seven GPUs."""
    cuts = {match[1] if (match := _INSTANCE.search(name)) else "" for name in summary.models.values()} - {""}
    return f"MIG {' and '.join(sorted(cuts))}" if cuts else "whole"


def _conditions(run: TestSummary, base: TestSummary) -> Iterator[Aspect]:
    """In what the work was done, on both sides."""
    if not run.work.scheme.spreads and not base.work.scheme.spreads:
        yield "tenants", str(run.devices), str(base.devices), "counted"
    if run.company is not None or base.company is not None:  # nodes of one device and of eight are compared
        yield "other devices", *sides(run, base, _meanwhile), "not counted"
    yield "tenants on each device", *sides(run, base, _sharing), "suppressed"
    if run.tiers and base.tiers:
        tiers = sides(run, base, lambda row: weakest_tier(row.tiers))
        yield "isolation", *tiers, "not counted" if "none" in tiers else "counted"
    yield "last-level caches", *sides(run, base, _caches), "counted"
    yield from _of_what_went_wrong(run, base)
    if bool(run.work.precision) == bool(base.work.precision):  # else nobody knows what one of both read
        limits = sides(run, base, lambda row: joined(format_limit(one.bytes_per_s) for one in row.read_limits))
        yield "limit of reads", *limits, "suppressed"
        caches = sides(run, base, lambda row: joined(at.cache for at in row.work.data))
        yield "data cache", *caches, "suppressed" if run.work.bound == "io" else "counted"


def _meanwhile(row: TestSummary) -> str:
    """What the node's other devices did while a launch was measured; nothing if there are no others."""
    if row.company is None:
        return "nothing" if row.devices == 1 or row.work.scheme.spreads else "the same test"
    return joined(row.company) or "nothing"


def _sharing(row: TestSummary) -> str:
    """How many tenants share each device, and how."""
    return "1" if row.sharing is None else f"{row.sharing.value:g} ({row.sharing.what})"


def _caches(row: TestSummary) -> str:
    """Whether each tenant had a part of its own."""
    return "divided" if any(mark.kind == "caches divided" for mark in row.marks) else "shared"


def _of_what_went_wrong(run: TestSummary, base: TestSummary) -> Iterator[Aspect]:
    """Problems of the baseline, compared with the run, since a bad baseline flatters every run. The run's own are in
    its report."""
    if base.marks:
        marks = sides(run, base, lambda row: joined(map(_short, row.marks)) or "none")
        yield "comparability warnings", *marks, "counted"
    if base.flags and run.launches:  # a stored baseline has no single launches, and so no flags
        flags = sides(run, base, lambda row: joined(flag_word(flag.kind) for flag in row.flags) or "none")
        yield "anomalies", *flags, "counted"
    if base.failures:
        yield "failures", *sides(run, base, lambda row: f"{row.failures} of {row.n}"), "counted"


def _short(mark: Mark) -> str:
    """The kind and subject of a mark, without its size."""
    return f"{mark.kind} ({mark.what})" if mark.what else mark.kind


def _of_departures(run: TestSummary, base: TestSummary) -> Iterator[Aspect]:
    ours, theirs = ({each.what: each.decides for each in row.departures} for row in (run, base))
    for what in sorted(ours.keys() ^ theirs.keys()):
        sides = (what, AS_TODAY) if what in ours else (AS_TODAY, what)
        yield OTHER, *sides, "not counted" if (ours | theirs)[what] else "counted"


def _merged(found: Iterable[WorkDifference]) -> Iterator[WorkDifference]:
    """Merge equal differences of several tests into one."""
    for same in grouped(found, lambda one: (one.what, one.run, one.baseline, one.ratio)).values():
        yield msgspec.structs.replace(same[0], tests=tuple(test for one in same for test in one.tests))

"""The differences between two results, and which of them make a ratio meaningless. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from milabench_ng.records.isolation import weakest_tier
from milabench_ng.records.marks import Mark
from milabench_ng.report.launch.host_paces import PACE_UNIT, Paces, differ
from milabench_ng.report.summary.summary import Summary, TestSummary
from milabench_ng.units import format_limit

Ratio = Literal["counted", "not counted", "suppressed"]
"""What happens to a row's ratio: it counts; it is shown, but the work differs or is unknown; it is meaningless and
hidden."""

FREE_OPTIONS = frozenset({"max_count", "max_seconds", "seed", "sample_duration", "precision"})
"""Options for how long a launch runs and its starting numbers, neither of which changes what an item is. The precision
that ran is compared separately."""
_PACE = ("torch", "cuda", "cudnn")
"""Packages whose major version, if changed, makes the same test a different computation."""
_FEEDING = ("workers",)
"""Options that change how a batch is made, not what is computed: they matter if that sets the pace."""
_FED = ("cpu", "io")
"""Bounds of tests whose pace depends on their data."""
_INSTANCE = re.compile(r" MIG ((?:\d+c\.)?\d+g)\.")
"""In the name of an instance of MIG, its compute slices."""
_UNKNOWN = "not recorded"


class WorkDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference."""

    what: str
    run: str
    baseline: str
    tests: tuple[str, ...] = ()
    """The rows affected; empty for the whole run."""
    ratio: Ratio = "counted"
    """What happens to the ratio of these rows."""

    @property
    def text(self) -> str:
        """The difference in one line."""
        if self.what == WORK:
            return f"different work: {self.baseline if self.run == AS_TODAY else self.run}"
        if self.what == KIND and self.ratio == "not counted":
            return f"its data set, which set the pace, was of another kind: {self.run} against {self.baseline}"
        return f"{self.what} {self.run} against {self.baseline}"


WORK, AS_TODAY, KIND = "work", "as the test is today", "data kind"


def differences(run: Summary, baseline: Summary) -> tuple[WorkDifference, ...]:
    """Differences between the whole runs, then between the tests that both have.

    A run-level value that is not recorded is not a difference. A value that only one of two rows records is: whether
    the work was the same is unknown, and the ratio does not count.
    """
    return (*_of_runs(run, baseline), *_merged(_of_tests(run, baseline)))


def _of_runs(run: Summary, baseline: Summary) -> Iterator[WorkDifference]:
    ours, theirs = run.provenance.software, baseline.provenance.software
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name] != theirs[name]:
            yield WorkDifference(what=name, run=ours[name], baseline=theirs[name])
    if run.devices != baseline.devices:
        yield WorkDifference(what="devices", run=str(run.devices), baseline=str(baseline.devices))
    yield from _of_hosts(run.host_pace, baseline.host_pace)
    if run.profile_sha256 and baseline.profile_sha256 and set(run.profile_sha256) != set(baseline.profile_sha256):
        short = [", ".join(sha[:12] for sha in side) for side in (run.profile_sha256, baseline.profile_sha256)]
        yield WorkDifference(what="profile", run=short[0], baseline=short[1])


def _of_hosts(run: Paces | None, baseline: Paces | None) -> Iterator[WorkDifference]:
    """Differences in the pace of the cores, which feed the GPUs."""
    if run is None or baseline is None:
        return
    if run.library != baseline.library:
        yield WorkDifference(what="computation of the host pace", run=run.library, baseline=baseline.library)
    elif differ(run.run.median, baseline.run.median):
        ours, theirs = (f"{at.run.median:.1f} {PACE_UNIT}" for at in (run, baseline))
        yield WorkDifference(what="host pace", run=ours, baseline=theirs)


def other_generation(run: Mapping[str, str], baseline: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The pace-setting packages whose major versions differ, with both versions."""
    known = [name for name in _PACE if name in run and name in baseline]
    return [
        (name, run[name], baseline[name])
        for name in known
        if run[name].partition(".")[0] != baseline[name].partition(".")[0]
    ]


def _of_tests(run: Summary, baseline: Summary) -> Iterator[WorkDifference]:
    cut: tuple[str, str, str, Ratio] = ("GPUs", part_of_gpu(run), part_of_gpu(baseline), "suppressed")
    for label, row in run.tests.items():
        other = baseline.tests.get(label)
        if other is None:
            continue
        for what, ours, theirs, ratio in (cut, *_aspects(row, other)):
            if ours != theirs:
                yield WorkDifference(what=what, run=ours, baseline=theirs, tests=(label,), ratio=ratio)


def part_of_gpu(summary: Summary) -> str:
    """How GPUs are cut into devices: an instance of MIG is no GPU, and seven of one are no seven GPUs."""
    cuts = {match[1] if (match := _INSTANCE.search(name)) else "" for name in summary.models.values()} - {""}
    return f"MIG {' and '.join(sorted(cuts))}" if cuts else "whole"


def _aspects(run: TestSummary, base: TestSummary) -> Iterator[tuple[str, str, str, Ratio]]:
    """What is compared, its value on both sides, and the effect of a difference on the ratio."""
    if run.classic_factor is not None and base.classic_factor is not None:
        yield "unit", run.unit, base.unit, "suppressed"
        yield "items of 2020 per item", f"{run.classic_factor:g}", f"{base.classic_factor:g}", "suppressed"
    if not run.scheme.spreads and not base.scheme.spreads:
        yield "tenants", str(run.devices), str(base.devices), "counted"
    if run.company is not None or base.company is not None:  # nodes of one device and of eight are compared
        yield "other devices meanwhile", *_sides(run, base, _meanwhile), "not counted"
    yield "tenants on each device", *_sides(run, base, _sharing), "suppressed"
    if run.tiers and base.tiers:
        tiers = _sides(run, base, lambda row: weakest_tier(row.tiers))
        yield "isolation", *tiers, "not counted" if "none" in tiers else "counted"
    yield "last-level caches", *_sides(run, base, _caches), "counted"
    yield from _of_what_went_wrong(run, base)
    if bool(run.precision) != bool(base.precision):  # all our records have a precision, and none from 2020 does
        recorded = _sides(run, base, lambda row: _joined(row.precision) or _UNKNOWN)
        yield "precision, data and options", *recorded, "not counted"
        return
    yield "precision", _joined(run.precision), _joined(base.precision), "suppressed"
    yield from _of_data(run, base)
    yield from _of_options(run, base)
    ours, theirs = ({each.what: each.decides for each in row.departures} for row in (run, base))
    for what in sorted(ours.keys() ^ theirs.keys()):
        sides = (what, AS_TODAY) if what in ours else (AS_TODAY, what)
        yield WORK, *sides, "not counted" if (ours | theirs)[what] else "counted"


def _meanwhile(row: TestSummary) -> str:
    """What the node's other devices did while a launch was measured; nothing if there are no others."""
    if row.company is None:
        return "nothing" if row.devices == 1 or row.scheme.spreads else "the same test"
    return _joined(row.company) or "nothing"


def _sharing(row: TestSummary) -> str:
    """How many tenants share each device, and how."""
    return "1" if row.sharing is None else f"{row.sharing.value:g} ({row.sharing.what})"


def _caches(row: TestSummary) -> str:
    """Whether each tenant had a part of its own."""
    return "divided" if any(mark.kind == "caches divided" for mark in row.marks) else "shared"


def _of_what_went_wrong(run: TestSummary, base: TestSummary) -> Iterator[tuple[str, str, str, Ratio]]:
    """Problems of the baseline, compared with the run, since a bad baseline flatters every run. The run's own are in
    its report."""
    if base.marks:
        marks = _sides(run, base, lambda row: _joined(map(_short, row.marks)) or "none")
        yield "marks", *marks, "counted"
    if base.flags:
        flags = _sides(run, base, lambda row: _joined(flag.kind for flag in row.flags) or "none")
        yield "flags", *flags, "counted"
    if base.failures:
        yield "failures", *_sides(run, base, lambda row: f"{row.failures} of {row.n}"), "counted"


def _short(mark: Mark) -> str:
    """The kind and subject of a mark, without its size."""
    return f"{mark.kind} ({mark.what})" if mark.what else mark.kind


def _of_data(run: TestSummary, base: TestSummary) -> Iterator[tuple[str, str, str, Ratio]]:
    fed = run.bound in _FED or base.bound in _FED
    names = _sides(run, base, lambda row: _joined(at.name.removesuffix(f"-{at.kind}") for at in row.data) or "none")
    yield "data set", *names, "suppressed"
    yield "data scale", *_sides(run, base, lambda row: _joined(f"{at.scale:g}" for at in row.data)), "suppressed"
    caches = _sides(run, base, lambda row: _joined(at.cache for at in row.data))
    yield "limit of reads", *_sides(run, base, _limits), "suppressed"
    yield "data cache", *caches, "suppressed" if run.bound == "io" else "counted"
    kinds = _sides(run, base, lambda row: _joined(at.kind for at in row.data))
    yield KIND, *kinds, "not counted" if fed and NOISE in kinds else "counted"


def _limits(row: TestSummary) -> str:
    return _joined(format_limit(limit.bytes_per_s) for limit in row.read_limits) or "none"


def _of_options(run: TestSummary, base: TestSummary) -> Iterator[tuple[str, str, str, Ratio]]:
    if bool(run.options) != bool(base.options):
        yield "options", *_sides(run, base, lambda row: "recorded" if row.options else _UNKNOWN), "not counted"
        return
    fed = run.bound in _FED or base.bound in _FED
    for name in sorted((run.options.keys() | base.options.keys()) - FREE_OPTIONS):
        ours, theirs = (str(row.options.get(name, _UNKNOWN)) for row in (run, base))
        if name in _FEEDING:
            if _UNKNOWN not in (ours, theirs):
                yield f"option {name}", ours, theirs, "not counted" if fed else "counted"
        else:
            yield f"option {name}", ours, theirs, "not counted" if _UNKNOWN in (ours, theirs) else "suppressed"


NOISE = "classic"
"""The kind of the images of 2020: decoding noise costs about 50 % more than decoding photographs."""


def _sides(run: TestSummary, base: TestSummary, show: Callable[[TestSummary], str]) -> tuple[str, str]:
    return show(run), show(base)


def _joined(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def _merged(found: Iterable[WorkDifference]) -> list[WorkDifference]:
    """Merge equal differences of several tests into one."""
    merged: dict[tuple[str, str, str, str], WorkDifference] = {}
    for one in found:
        key = (one.what, one.run, one.baseline, one.ratio)
        known = merged.get(key)
        merged[key] = msgspec.structs.replace(known, tests=known.tests + one.tests) if known else one
    return list(merged.values())

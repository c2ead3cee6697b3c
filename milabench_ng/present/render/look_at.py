"""Where a reader of the first screen should look: devices, neighbours, tests, processors. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from milabench_ng.analysis.conditions.condition import Condition, worst
from milabench_ng.analysis.launch.bottleneck import contradicts
from milabench_ng.analysis.launch.host_paces import PACE_UNIT, Paces
from milabench_ng.analysis.scoring.device_gaps import SLOWER_BY
from milabench_ng.analysis.scoring.slow_devices import MOST_REPEATS, SOUGHT, Behind, GpuComparison
from milabench_ng.analysis.statistics.intervals import RANKED_FROM
from milabench_ng.analysis.summary.summary import Summary, flag_word, name_of_row
from milabench_ng.model.grouping import grouped
from milabench_ng.model.plain import names_of
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import NAMED, Fact, device_word, rows_told
from milabench_ng.records.marks import MarkKind
from milabench_ng.report.report import Report

_TOLD_ELSEWHERE = {*get_args(MarkKind), "host pace", "stall"}
"""Kinds of conditions that are also marks or flags."""


def look_at(report: Report) -> Iterator[Fact]:
    """A line on the devices, on slowdowns that are lacking, on tests with odd launches, on odd processors."""
    if report.gpus is not None:
        yield devices_compared(report, report.gpus)
    if report.lost_cells:
        told = "; ".join(f"{lost.test} ({lost.why})" for lost in report.lost_cells)
        yield Fact("neighbors", f"no slowdown computed: {told}", "bad")
    yield from _odd_launches(report)
    yield from _conditions(report)
    if report.summary.host_pace is not None:
        yield from _processors(report.summary.host_pace, device_word(report.summary))


def _conditions(report: Report) -> Iterator[Fact]:
    """What was beyond its limit, unless a warning or an anomaly says so."""
    rows = [(line.scored.test, one) for line in report.lines for one in line.row.conditions]
    beyond = [(test, one) for test, one in rows if one.beyond and one.kind not in _TOLD_ELSEWHERE]
    found = grouped(beyond, lambda pair: (pair[1].kind, pair[1].what))
    if found:
        told = (f"{worst(one for _, one in pairs)[0].text} ({_tests(pairs)})" for pairs in found.values())
        yield Fact("conditions", f"beyond their limits: {'; '.join(told)}", "fair")


def _tests(pairs: Iterable[tuple[str, Condition]]) -> str:
    return rows_told(dict.fromkeys(test for test, _ in pairs))


def devices_compared(report: Report, found: GpuComparison) -> Fact:
    """The slow devices, those that may be slow, or the one furthest behind."""
    word = device_word(report.summary)
    alone = f"; {word} {', '.join(found.alone)} not checked: no other of that model" if found.alone else ""
    if not found.judged and len(found.alone) < len(found.devices):
        return _not_judged(report, found, word)
    single = _in_single_tests(found, word)
    if found.overall or found.behind:
        slow = ", ".join(f"{word} {at.device} ({at.effect_pct:+.1f}%)" for at in found.overall)
        told = [f"slow over all tests: {slow}"] if slow else [f"slow in single tests: {single}"] if single else []
        told += [not_proven(report.summary, found.behind, word, report.profile)] if found.behind else []
        return Fact("devices", "; ".join(told) + alone, "bad" if slow else "fair")
    if single:
        text = (
            f"no {word} is significantly slower over all tests{_noticed(found, word)}; in single tests: {single}{alone}"
        )
        return Fact("devices", text, "fair")
    text = f"no {word} is significantly slower{_noticed(found, word)}{_furthest(found, word)}{alone}"
    cleared = found.noticed is None or found.noticed >= 0.5
    return Fact("devices", text, "fair" if alone else "good" if cleared else "plain")


def _in_single_tests(found: GpuComparison, word: str) -> str:
    """The devices that are slow in single tests, and in how many; empty if none is."""
    tests = Counter(at.device for at in found.stragglers)
    return ", ".join(f"{word} {device} in {counted(times, 'test')}" for device, times in tests.items())


def not_proven(summary: Summary, behind: Sequence[Behind], word: str, profile: str) -> str:
    """Which devices may be slow over all tests, worst first, and the command whose repeats would tell."""
    first, *others = (f"{word} {at.device} is {-at.effect_pct:.1f}% behind" for at in behind[:NAMED])
    more = f", {len(behind) - NAMED} more" if len(behind) > NAMED else ""
    told = f"{', '.join((f'{first} over all tests', *others))}{more}, not proven with {behind[0].repeats} repeats"
    needed = [at.repeats_needed for at in behind if at.repeats_needed is not None]
    if not needed:
        return f"{told}; proof would need more than {MOST_REPEATS}"
    compared = [name_of_row(label) for label, row in summary.tests.items() if len(row.pergpu or {}) > 1]
    hopeless = [f"{word} {at.device}" for at in behind if at.repeats_needed is None]
    beyond = f"; more than {MOST_REPEATS} for {', '.join(hopeless)}" if hopeless else ""
    return f"{told}: {_command(profile, max(needed), compared if summary.omitted else ())}{beyond}"


def _noticed(found: GpuComparison, word: str) -> str:
    """What a silence is worth: a run of few or noisy repeats calls nothing slow."""
    if found.noticed is None:
        return ""
    runs = f"{math.floor(20 * found.noticed)} of 20 such runs"  # a run more would be claimed than is likely
    return f"; a {word} that is {100 * SOUGHT:g}% slower would be found in {runs}"


def _not_judged(report: Report, found: GpuComparison, word: str) -> Fact:
    """Which device is behind, where nobody can tell whether it is slow."""
    if any(len(line.row.repeats) > 1 for line in report.lines):
        text = f"slow-{word} check not possible: this file has no per-run data{_furthest(found, word)}"
        return Fact("devices", text, "faint")
    behind = sorted(_behind(found))
    if not behind:
        return Fact("devices", f"one repeat cannot tell a slow {word} from a slow launch", "faint")
    told = "; ".join(f"{word} {device} {told}" for device, told in _by_device(behind).items())
    return Fact("devices", f"{told}. Run more repeats before judging", "fair")


def _by_device(behind: Sequence[tuple[float, str, str]]) -> dict[str, str]:
    """In how many tests each device is behind, and in which most; first the one that is in most tests."""
    devices = grouped(behind, lambda each: each[1])
    order = sorted(devices, key=lambda device: -len(devices[device]))
    return {device: _in_tests(devices[device]) for device in order[:NAMED]}


def _in_tests(behind: Sequence[tuple[float, str, str]]) -> str:
    names = dict.fromkeys(name_of_row(label) for _, _, label in behind)
    share, _, label = behind[0]
    several = f"{counted(len(names), 'test')}, most in " if len(names) > 1 else ""
    return f"is behind the best in {several}{name_of_row(label)} ({100 * share - 100:+.0f}%)"


def repeated(profile: str, found: GpuComparison) -> str:
    """The command that repeats what one repeat does not judge; empty if there is nothing of that."""
    names = dict.fromkeys(name_of_row(label) for _, _, label in sorted(_behind(found)))
    if found.judged or not names:
        return ""
    return _command(profile, RANKED_FROM, names)


def _command(profile: str, repeats: int, names: Iterable[str]) -> str:
    return " ".join((f"mnb jobs {profile} --repeat {repeats}", *(f"--name {name}" for name in names)))


def _furthest(found: GpuComparison, word: str) -> str:
    """The device that is furthest behind the best one in a test, slow or not."""
    behind = sorted(_shares(found))
    if not behind or behind[0][0] >= 1:
        return ""
    share, device, test = behind[0]
    return f". Largest gap: {word} {device} in {name_of_row(test)} ({100 * share - 100:+.1f}%)"


def _behind(found: GpuComparison) -> Iterator[tuple[float, str, str]]:
    """Where a device is slower than it may be."""
    return (each for each in _shares(found) if each[0] < 1 - SLOWER_BY)


def _shares(found: GpuComparison) -> Iterator[tuple[float, str, str]]:
    """What each device reaches of the best, 0 to 1, with device and test."""
    for row in found.mean:
        for device, share in zip(found.devices, row.relative, strict=True):
            if share is not None:
                yield share, device, row.test


def _odd_launches(report: Report) -> Iterator[Fact]:
    """Other bottlenecks by test, since they change what it measures; of other odd launches the number of each kind."""
    other = {
        line.scored.test: f"{name_of_row(line.scored.test)} by {line.row.bottleneck}, not {line.scored.bound}"
        for line in report.lines
        if contradicts(line.scored.bound, line.row.bottleneck)
    }
    if other:
        named = names_of(list(other.values()), NAMED)
        yield Fact("tests", f"bound by something else than declared: {named}", "fair")
    others = Counter(flag.kind for test, flag in report.flags if flag.kind != "bottleneck" or test not in other)
    if others:
        named = ", ".join(f"{count} x {flag_word(kind)}" for kind, count in others.most_common())
        yield Fact("launches", f"anomalies (still counted): {named}", "fair")


def _processors(found: Paces, word: str) -> Iterator[Fact]:
    """The cores of a share that are slower than the others', or that changed their speed."""
    for device, change in found.slow.items():
        text = f"the CPU cores of {word} {device} are slower than the others ({100 * change:+.1f}%)"
        meanwhile = found.disturbed and f", while {found.disturbed}"
        yield Fact("cores", f"{text}{meanwhile}", "fair" if meanwhile else "bad")
    if found.uneven and not found.slow:
        pace = f"{found.run.min:.1f} to {found.run.max:.1f} {PACE_UNIT}"
        varied = f"CPU speed varied during the run ({pace} in the zlib check)"
        yield Fact("cores", varied if found.run.n > 1 else found.changes, "fair")

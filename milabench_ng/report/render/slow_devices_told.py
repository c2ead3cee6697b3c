"""The statement on slow devices. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from milabench_ng.report.render.cells import Fact, counted
from milabench_ng.report.report import Report
from milabench_ng.report.scoring.slow_devices import SLOWER_BY, GpuComparison


def slow_devices(report: Report) -> list[Fact]:
    found = report.gpus
    if found is None:
        return []
    alone = found.alone
    if not found.judged and len(alone) < len(found.devices):
        return [Fact("slow devices", f"not known: {_why_not_judged(report, found)}", "faint")]
    slow = [f"device {at.device} ({at.effect_pct:+.1f} %)" for at in found.overall]
    single = Counter(at.device for at in found.stragglers)
    some = ", ".join(f"device {device} in {count}" for device, count in single.items()) if not slow else ""
    but = f"; not known of {', '.join(alone)}: no other is of that model" if alone else ""
    if some:
        return [Fact("slow devices", f"none over all tests; in single tests: {some}{but}", "fair")]
    return [Fact("slow devices", f"{', '.join(slow) or 'none'}{but}", "bad" if slow else "fair" if but else "good")]


def _why_not_judged(report: Report, found: GpuComparison) -> str:
    if any(len(line.row.repeats) > 1 for line in report.lines):
        return "single launches are not recorded"
    behind = sorted(_behind(found))
    if not behind:
        return f"one repeat does not tell a slow device from a slow launch: mnb jobs {report.summary.suite} --repeat 5"
    worst, device, test = behind[0]
    names = dict.fromkeys(label.partition(".")[2] or label for _, _, label in behind)
    command = " ".join((f"mnb jobs {report.summary.suite} --repeat 5", *(f"--name {name}" for name in names)))
    far = f"device {device} in {test.partition('.')[2] or test} ({100 * worst - 100:+.0f} %)"
    return f"behind the best in {counted(len(names))}, most of all {far}; repeat before judging: {command}"


def _behind(found: GpuComparison) -> Iterator[tuple[float, str, str]]:
    """What each device reaches of the best where it is slower than it may be, with device and test."""
    for row in found.mean:
        for device, share in zip(found.devices, row.relative, strict=True):
            if share is not None and share < 1 - SLOWER_BY:
                yield share, device, row.test

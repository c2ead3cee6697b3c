"""What a stress run has to say on the first screen: what was verified, how hard it burned, how it held out. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.summary.stress import Drift, Ends
from milabench_ng.analysis.summary.summary import TestSummary, name_of_row
from milabench_ng.model.plain import plain
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import Answer, device_word
from milabench_ng.records.verified import sentence
from milabench_ng.report.report import Report

SLOWER = -0.01
"""A rate that fell by more is worth a look."""


def stress_answers(report: Report) -> Iterator[Answer]:
    """Nothing for tests that neither verify their work nor last long."""
    done = sentence(report.verified)
    if done:
        yield _verified(report, done)
        yield from _power(report)
    drifts = [(label, row.drift) for label, row in report.summary.tests.items() if row.drift is not None]
    if drifts:
        label, drift = min(drifts, key=lambda pair: pair[1].change)
        parts = (f"{name_of_row(label)} {told(drift, device_word(report.summary))}",)
        more = (f"most of {counted(len(drifts), 'test')}",) if len(drifts) > 1 else ()
        yield Answer(name="Last vs first", parts=(*parts, *more), tone="fair" if drift.change < SLOWER else "good")


def _verified(report: Report, done: str) -> Answer:
    """The work whose results were compared with what they must be, and what is known of them from elsewhere."""
    known = (f"{counted(len(one.alike), 'test')} as in {plain(one.name)}" for one in report.known_answers if one.alike)
    return Answer(name="Verified", parts=(done, *known), tone="bad" if report.mismatches else "good")


def _power(report: Report) -> Iterator[Answer]:
    """The power that the hottest of the verified tests reached on the GPU that reached least.

    Tests of a disk or of links verify their work, too, and are not there to burn.
    """
    rows: dict[str, TestSummary] = {
        label: row
        for label, row in report.summary.tests.items()
        if row.verified and row.work.bound in ("gpu-compute", "gpu-memory")
    }
    known = {label: row.power_fraction for label, row in rows.items() if row.power_fraction is not None}
    if known:
        label = max(known, key=lambda each: known[each])
        told = f"{known[label]:.0%} of the power limit in {name_of_row(label)}, on the GPU that took least"
        yield Answer(name="Burned", parts=(told,))


def told(drift: Drift, word: str) -> str:
    """``"-0.4% (GPU 3), SM clock 1455 to 1440 MHz, 61 to 66 C; 10 min each"``."""
    figures: tuple[tuple[Ends | None, str, str], ...] = (
        (drift.sm_clock_mhz, "SM clock ", " MHz"),
        (drift.temperature_c, "", " °C"),
        (drift.memory_temperature_c, "memory ", " °C"),
        (drift.power_w, "", " W"),
    )
    parts = [f"{what}{ends[0]:.0f} to {ends[1]:.0f}{unit}" for ends, what, unit in figures if ends is not None]
    changed = f"{100 * drift.change:+.1f}% ({word} {drift.slot})"
    return f"{', '.join((changed, *parts))}; {drift.minutes:.1f} min each"

"""Statements on the choices for a run or its report that change what a number means. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.model.plan import unplanned_told
from milabench_ng.model.shipped import names
from milabench_ng.present.render.cells import Fact, rows_told
from milabench_ng.report.report import Report


def choices_told(report: Report) -> Iterator[Fact]:
    """One line per unusual choice."""
    yield from _weights(report)
    for sha256 in report.choices.profiles:
        yield Fact(
            "profile",
            f"that of this run (SHA-256 {sha256[:12]}) differs from the shipped {report.summary.suite}",
            "fair",
        )
    for order in report.summary.orders:
        yield Fact("order", order)


def devices_told(report: Report) -> Iterator[Fact]:
    """That devices of the node were idle, unless a mark says so."""
    summary = report.summary
    marked = any(mark.kind == "devices left out" for mark in report.marks)
    if summary.node_devices is not None and summary.node_devices > summary.devices and not marked:
        yield Fact("devices", f"only {summary.devices} of the node's {summary.node_devices} devices were used", "fair")


def _weights(report: Report) -> Iterator[Fact]:
    """Where the weights come from, and what happened to those that could not be used as they are."""
    parts, suite = [], report.summary.suite
    if report.choices.weights:
        instead = f" instead of the shipped weights of {suite}" if suite in names("weights") else ""
        parts.append(f"from {report.choices.weights}{instead}")
    if report.choices.packed:
        suites = " and ".join(report.choices.packed)
        parts.append(f"the bundle has other weights for {suites}, and mnb verify scores with those")
    if report.without_weight:
        parts.append(f"without a weight, so not in the score: {rows_told(report.without_weight)}")
    chosen = bool(parts)
    parts += unplanned_told(report.summary.unplanned)
    if report.steps_left_out:
        steps = f"{', '.join(report.steps_left_out)} need more GPUs than this node has"
        parts.append(f"{steps}; their weight is shared equally among the steps that ran")
    if parts:
        yield Fact("weights", "; ".join(parts), "fair" if chosen else "plain")

"""The heat map of a fleet: nodes by tests, in which only what is slower than the median by a percent is drawn. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.fleet.report import FleetReport, NodeLine
from milabench_ng.present.html.figures import Box, Chart, View, cell, faded, names, pace_colour, pace_key, plot

_ROW = 14
"""Height of a row in pixels."""
_ROWS = 128
"""So many nodes are in one view, if there are no groups."""
_QUIET = 0.01
"""Cells that are less than this away from the median are not drawn: a thousand nodes have twenty thousand."""
_LOUDEST = 0.10
_QUIET_TO_LOUD = ((0.0, 0.0), (_QUIET / _LOUDEST, 0.12), (1.0, 0.9))
"""Opacity of cells."""


def fleet_charts(report: FleetReport) -> Iterator[Chart]:
    """The heat map, if there is a test."""
    if not report.tests:
        return
    tests = [name_of_row(one.test) for one in report.tests]
    yield Chart(
        key="fleet",
        title="nodes by tests",
        wide=True,
        reading="Rate of each node (row) in each test (column) over the fleet's median, from the screen. Orange is "
        "slower, blue is faster; less than 1% is blank. Point at a cell for its ratio.",
        chooses="nodes",
        views=tuple(_view(name, lines, tests) for name, lines in _parts(report)),
    )


def _parts(report: FleetReport) -> Iterator[tuple[str, Sequence[NodeLine]]]:
    """Those that do not pass, then groups or neighbors in the order of their names."""
    bad = [line for line in report.lines if line.verdict.verdict not in ("pass", "lost")]
    if bad:
        yield "nodes that do not pass", bad[:_ROWS]
    if report.grouped:
        for group in dict.fromkeys(line.group for line in report.lines):
            yield group, [line for line in report.lines if line.group == group]
        return
    for begin in range(0, len(report.lines), _ROWS):
        lines = report.lines[begin : begin + _ROWS]
        yield f"{lines[0].verdict.node} to {lines[-1].verdict.node}", lines


def _view(name: str, lines: Sequence[NodeLine], tests: Sequence[str]) -> View:
    rows = [_label(line) for line in lines]
    boxes = (
        _box(line, ratio, (column, row), tests[column])
        for row, line in enumerate(lines)
        for column, ratio in enumerate(line.ratios)
        if ratio is not None and abs(ratio - 1) >= _QUIET
    )
    keys = (pace_key(ratio, _opacity(ratio)) for ratio in (0.90, 0.95, 0.98, 1.02, 1.05))
    height = _ROW * max(4, len(lines))
    return plot(names(tests, side="top"), names(rows, down=True), boxes, keys=keys, name=name, height=height)


def _label(line: NodeLine) -> str:
    verdict = line.verdict.verdict
    return line.verdict.node if verdict == "pass" else f"{line.verdict.node} {verdict}"


def _box(line: NodeLine, ratio: float, at: tuple[int, int], test: str) -> Box:
    title = f"{line.verdict.node} {test} {ratio:.3f}"
    return cell(at, pace_colour(ratio), round(_opacity(ratio), 2), title=title)


def _opacity(ratio: float) -> float:
    return faded(_QUIET_TO_LOUD, abs(ratio - 1) / _LOUDEST)

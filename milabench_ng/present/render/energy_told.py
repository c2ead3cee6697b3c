"""What a run used, and what its work draws: statements, each with its boundary. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.analysis.scoring.energy_cost import EnergyCost
from milabench_ng.analysis.scoring.reference import unit_told
from milabench_ng.analysis.summary.energy import LEAST_S
from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.units import four_digits
from milabench_ng.present.render.cells import Fact, rows_told
from milabench_ng.report.report import Report


def energy_told(report: Report) -> Iterator[Fact]:
    """What the run used, what it draws at rest, and the tests without an energy of their items."""
    summary = report.summary
    for name, unit, drawn in (("energy", "kWh", summary.energy_kwh), ("idle power", "W", summary.idle_w)):
        if drawn:
            told = ", ".join(f"{amount:.3g} {unit} ({boundary})" for boundary, amount in drawn.items())
            yield Fact(name, told if name == "idle power" else f"the run used {told}")
    for at in report.energy_costs:
        yield from (Fact("energy", f"{points} ({at.boundary})") for points in points_per_kwh(report, at))
    short = [test for test, row in summary.tests.items() if _is_short(row)]
    if short:
        yield Fact("energy", f"n/a for {rows_told(short)}: windows of less than {LEAST_S:g} s in all", "fair")
    shared = [test for test, row in summary.tests.items() if row.sharing and row.sharing.what[:3] == "GPU"]
    if shared or any(" MIG " in model for model in summary.models.values()):
        which = rows_told(shared) if shared else "MIG instances"
        yield Fact("energy", f"n/a for {which}: only the whole GPU has a meter, and its energy is not divided", "fair")


def points_per_kwh(report: Report, at: EnergyCost) -> Iterator[str]:
    """The points for a kWh, with their interval; nothing without a complete score."""
    if at.points_per_kwh:
        width = f" [{four_digits(at.interval.low)}, {four_digits(at.interval.high)}]" if at.interval else ""
        yield f"{four_digits(at.points_per_kwh)} {unit_told(report.score_unit)} per kWh{width}"


def _is_short(row: TestSummary) -> bool:
    return any(one.joules_per_item is None and one.seconds < LEAST_S for one in row.energy)

"""The tables of devices and their cores. Pure."""

from __future__ import annotations

from milabench_ng.analysis.launch.host_paces import PACE_UNIT, Paces
from milabench_ng.analysis.scoring.slow_devices import GpuComparison, Measure
from milabench_ng.present.render.cells import Cell, Tone, number, one_decimal, percent, whole
from milabench_ng.present.render.sections import Column, Heading, Section, section


def stragglers(gpus: GpuComparison) -> Section:
    return section(
        "stragglers",
        "slow devices",
        (*gpus.overall, *gpus.stragglers),
        Column("device", tone=lambda _: "bad", value=lambda slow: slow.device),
        Column("test", value=lambda slow: slow.test or "all"),
        Column("against the others", "%", one_decimal, True, value=lambda slow: slow.effect_pct),
        Column("p", "", number, True, value=lambda slow: slow.p),
        notes=(
            f"more than 3 % below the others{' of their model' if gpus.models else ''}; p over all devices and tests",
        ),
    )


def matrix(gpus: GpuComparison, measure: Measure, again: str = "") -> Section:
    """The devices side by side; ``again``: the command that repeats what one repeat does not judge."""
    return Section(
        key=f"gpus-{measure}",
        title=f"devices, {measure} over the launches, relative to the best",
        headings=(
            Heading("test"),
            *(Heading(f"device {name}", "%", one_decimal, True, _gpu_tone) for name in named(gpus)),
        ),
        rows=tuple((row.test, *map(percent, row.relative)) for row in gpus.rows(measure)),
        notes=(f"one repeat does not tell a slow device from a slow launch: {again}",) if again else (),
    )


def named(gpus: GpuComparison) -> list[str]:
    """The devices, with their models if these differ."""
    if not gpus.models:
        return list(gpus.devices)
    return [f"{device}, {model}" for device, model in zip(gpus.devices, gpus.models, strict=True)]


def _gpu_tone(cell: Cell) -> Tone:
    """The colours of 2020."""
    if not isinstance(cell, int | float):
        return "plain"
    steps: tuple[tuple[float, Tone], ...] = ((90, "good"), (80, "fair"), (70, "poor"))
    return next((tone for bound, tone in steps if cell >= bound), "bad")


def host_pace_section(found: Paces) -> Section:
    rows = [("all", found.run)]
    if len(found.sessions) > 1:
        rows += [(f"session {name}", stat) for name, stat in found.sessions.items()]
    if len(found.devices) > 1:
        rows += [(f"device {name}", stat) for name, stat in found.devices.items()]
    return section(
        "host-pace",
        "host pace",
        rows,
        Column("cores of", value=lambda row: row[0]),
        Column("batches", "", whole, True, value=lambda row: row[1].n),
        Column("median", PACE_UNIT, one_decimal, True, value=lambda row: row[1].median),
        Column("least", PACE_UNIT, one_decimal, True, value=lambda row: row[1].min),
        Column("greatest", PACE_UNIT, one_decimal, True, value=lambda row: row[1].max),
        Column("against all", "%", one_decimal, True, value=lambda row: 100 * (row[1].median / found.run.median - 1)),
        notes=found.remarks,
    )

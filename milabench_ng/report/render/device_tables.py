"""The tables of devices and their cores. Pure."""

from __future__ import annotations

from milabench_ng.report.launch.host_paces import PACE_UNIT, Paces
from milabench_ng.report.render.cells import Cell, Tone, one_decimal, text, whole
from milabench_ng.report.render.sections import Heading, Section
from milabench_ng.report.scoring.slow_devices import GpuComparison, Measure


def stragglers(gpus: GpuComparison) -> Section:
    return Section(
        key="stragglers",
        title="slow devices",
        headings=(
            Heading("device", "", text, False, lambda _: "bad"),
            Heading("test"),
            Heading("against the others", "%", one_decimal, True),
            Heading("z", "", one_decimal, True),
        ),
        rows=tuple(
            (slow.device, slow.test or "all", slow.effect_pct, slow.z) for slow in (*gpus.overall, *gpus.stragglers)
        ),
        notes=(
            f"run them once more before they are judged{'; each is held against its model' if gpus.models else ''}",
        ),
    )


def matrix(gpus: GpuComparison, measure: Measure) -> Section:
    return Section(
        key=f"gpus-{measure}",
        title=f"devices, {measure} over the launches, relative to the best",
        headings=(
            Heading("test"),
            *(Heading(f"device {name}", "%", one_decimal, True, _gpu_tone) for name in named(gpus)),
        ),
        rows=tuple(
            (row.test, *(None if share is None else 100 * share for share in row.relative))
            for row in gpus.rows(measure)
        ),
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
    return Section(
        key="host-pace",
        title="host pace",
        headings=(
            Heading("cores of"),
            Heading("batches", "", whole, True),
            Heading("median", PACE_UNIT, one_decimal, True),
            Heading("least", PACE_UNIT, one_decimal, True),
            Heading("greatest", PACE_UNIT, one_decimal, True),
            Heading("against all", "%", one_decimal, True),
        ),
        rows=tuple(
            (name, stat.n, stat.median, stat.min, stat.max, 100 * (stat.median / found.run.median - 1))
            for name, stat in rows
        ),
        notes=(f"computed by {found.library}",),
    )

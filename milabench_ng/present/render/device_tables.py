"""The tables of devices and their cores. Pure."""

from __future__ import annotations

from milabench_ng.analysis.launch.host_paces import PACE_UNIT, Paces
from milabench_ng.analysis.scoring.slow_devices import MEASURES, GpuComparison, Measure
from milabench_ng.present.render.cells import number, one_decimal, percent, shaded, toned, whole
from milabench_ng.present.render.sections import Column, Heading, Section, section, table


def stragglers(gpus: GpuComparison, not_proven: str = "") -> Section:
    """The devices that are slow, and those that may be; ``not_proven``: what would tell."""
    like = " of their model" if gpus.models else ""
    rows = [(slow.device, slow.test or "all", slow.effect_pct, slow.p, "slow") for slow in gpus.overall]
    rows += [(at.device, "all", at.effect_pct, at.p, "not proven") for at in gpus.behind]
    rows += [(slow.device, slow.test or "all", slow.effect_pct, slow.p, "slow") for slow in gpus.stragglers]
    return section(
        "stragglers",
        "devices behind the others",
        rows,
        Column("device", value=lambda row: row[0]),
        Column("test", value=lambda row: row[1]),
        Column("vs. others", "%", one_decimal, True, value=lambda row: row[2]),
        Column("p", "", number, True, value=lambda row: row[3]),
        Column("verdict", tone=toned({"slow": "bad"}, "fair"), value=lambda row: row[4]),
        notes=(
            f"slow: significantly more than 3% below the mean of the others{like} (adjusted p < 0.05)",
            *((not_proven,) if not_proven else ()),
        ),
    )


def matrix(gpus: GpuComparison, measure: Measure, again: str = "") -> Section:
    """The devices side by side; ``again``: the command that repeats what one repeat does not judge."""
    return Section(
        key=f"gpus-{measure}",
        title=f"devices, {measure} over launches, relative to the best device",
        headings=(
            Heading("test"),
            *(Heading(f"device {name}", "%", one_decimal, True, _GPU_TONE) for name in named(gpus)),
        ),
        rows=tuple((row.test, *map(percent, row.relative)) for row in gpus.rows(measure)),
        notes=(f"one repeat cannot tell a slow device from a slow launch: {again}",) if again else (),
    )


def in_rows(gpus: GpuComparison) -> Section:
    """The same for programs: a row for each test and device."""
    rows = [
        (test.test, device, *(percent(row.relative[place]) for row in measures))
        for test, *measures in zip(gpus.mean, *(gpus.rows(measure) for measure in MEASURES), strict=True)
        for place, device in enumerate(named(gpus))
    ]
    of_best = (Heading(measure, f"% of best {measure}", one_decimal, True) for measure in MEASURES)
    return table("devices", rows, "test", "device", *of_best)


def named(gpus: GpuComparison) -> list[str]:
    """The devices, with their models if these differ."""
    if not gpus.models:
        return list(gpus.devices)
    return [f"{device}, {model}" for device, model in zip(gpus.devices, gpus.models, strict=True)]


_GPU_TONE = shaded((90, "good"), (80, "fair"), (70, "poor"))
"""The colours of 2020."""


def host_pace_section(found: Paces) -> Section:
    rows = [("all", found.run)]
    if len(found.sessions) > 1:
        rows += [(f"session {name}", stat) for name, stat in found.sessions.items()]
    if len(found.devices) > 1:
        rows += [(f"device {name}", stat) for name, stat in found.devices.items()]
    return section(
        "host-pace",
        "CPU speed check",
        rows,
        Column("cores of", value=lambda row: row[0]),
        Column("launch groups", "", whole, True, value=lambda row: row[1].n),
        Column("median", PACE_UNIT, one_decimal, True, value=lambda row: row[1].median),
        Column("min", PACE_UNIT, one_decimal, True, value=lambda row: row[1].min),
        Column("max", PACE_UNIT, one_decimal, True, value=lambda row: row[1].max),
        Column(
            "vs. all",
            "%",
            one_decimal,
            True,
            value=lambda row: 100 * (row[1].median / found.run.median - 1),
        ),
        notes=found.remarks,
        detail=True,
    )

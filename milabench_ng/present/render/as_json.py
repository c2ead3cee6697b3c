"""The report as JSON, for programs. ``schema`` changes when the meaning of a key does."""

from __future__ import annotations

from typing import Any, TextIO

import msgspec

from milabench_ng.analysis.scoring.comparison import ComparedTest, Comparison
from milabench_ng.analysis.scoring.neighbours import contentiousness, cost_of_neighbours, worth_of_fence
from milabench_ng.model.plain import printed_json
from milabench_ng.report.report import Line, Report

REPORT_SCHEMA = 3


def write(report: Report, stream: TextIO) -> None:
    """Write ``report`` to ``stream``; what was not measured is null."""
    stream.write(printed_json(as_object(report)))


def as_object(report: Report) -> dict[str, Any]:
    """The report as plain values. Rates are in items of the test's ``unit`` per second, scores in their ``unit``."""
    summary, rate = report.summary, report.failure_rate
    return {
        "schema": REPORT_SCHEMA,
        "rules": _rules(report),
        "suite": summary.suite,
        "source": report.source,
        "units": summary.units,
        "hardware": summary.provenance.hardware,
        "isolation": report.isolation,
        "marks": report.marks,
        "notes": summary.notes,
        "going_on": summary.going_on,
        "launches": {
            "n": rate.n - sum(row.missing for row in summary.tests.values()),
            "planned": sum(row.planned or 0 for row in summary.tests.values()) if summary.has_plan else None,
            "missing": sum(row.missing for row in summary.tests.values()),
            "pending": sum(row.pending for row in summary.tests.values()),
        },
        "damage": report.damage,
        "choices": _choices(report),
        "penalize_variance": report.penalize_variance,
        "score": _score(report),
        "failure_rate": rate.rate,
        "failures": {"n": rate.n, "fail": rate.fail, "low": rate.least, "high": rate.most, "passed": rate.passed},
        "baseline": _baseline(report.comparisons[0], report.score_unit) if report.comparisons else None,
        "ratio": report.comparisons[0].ratio if report.comparisons else None,
        "baselines": [_baseline(other, report.score_unit) for other in report.comparisons],
        "intervals_cover": report.coverage,
        "another_day_pct": report.another_day_pct,
        "sub_scores": report.sub_scores,
        **({"suites": [_suite(part) for part in report.suites]} if report.suites else {}),
        "gpus": report.gpus,
        "host_pace": summary.host_pace,
        "scaling": report.scaling,
        "price": msgspec.structs.asdict(report.price) if report.price else None,
        "energy": _energy(report),
        "neighbours": _neighbours(report),
        "fence": _fence(report),
        "shared_devices": report.shared_devices,
        "tests": [_test(line) for line in report.lines],
        "failed": [{"test": test, **msgspec.structs.asdict(failed)} for test, failed in report.failed],
        "flags": [{"test": test, **msgspec.structs.asdict(flag)} for test, flag in report.flags],
        "problems": summary.problems,
    }


def _rules(report: Report) -> dict[str, Any] | None:
    found = report.verification
    if found is None:
        return None
    return {
        "passed": found.passed,
        "verdict": found.sentence,
        "rulings": found.rulings,
        "doubts": found.doubts,
    }


def _choices(report: Report) -> dict[str, Any]:
    """Inputs other than the shipped or usual ones; the margin is listed with each baseline."""
    return {
        "weights": report.choices.weights or None,
        "without_weight": report.without_weight,
        "profiles": report.choices.profiles,
        "orders": report.summary.orders,
        "node_devices": report.summary.node_devices,
    }


def _score(report: Report) -> dict[str, Any] | None:
    return msgspec.structs.asdict(report.score) if report.score else None


def _suite(report: Report) -> dict[str, Any]:
    """What a report on several suites says of one of them."""
    return {
        "suite": report.summary.suite,
        "score": _score(report),
        "baselines": [_baseline(other, report.score_unit) for other in report.comparisons],
        "sub_scores": report.sub_scores,
        "price": msgspec.structs.asdict(report.price) if report.price else None,
        "energy": _energy(report),
    }


def _energy(report: Report) -> dict[str, Any]:
    """What the run used and the work of the score draws, by boundary; empty where nothing is known."""
    return {
        "kwh": report.summary.energy_kwh,
        "idle_w": report.summary.idle_w,
        "costs": [
            msgspec.structs.asdict(one) | {"per_hour": one.per_hour, "per_point_year": one.per_point_year}
            for one in report.energy_costs
        ],
    }


def _neighbours(report: Report) -> dict[str, Any] | None:
    """The slowdowns, and their mean over the packed victims; and what has none; null if no test ran alone."""
    cells = [_without(cell, "stat", "by_repeat") | {"slowdown": cell.value} for cell in report.neighbours]
    if not cells and not report.lost_cells:
        return None
    means = {"cost": cost_of_neighbours(report.neighbours), "by_antagonist": contentiousness(report.neighbours)}
    return means | {"cells": cells, "without_figure": report.lost_cells}


def _fence(report: Report) -> dict[str, Any] | None:
    """Slowdowns without the fence over those with it, and their mean; null without a run of each kind."""
    cells = [_without(gain, "by_repeat") | {"worth": gain.value} for gain in report.fence_gains]
    return {"worth": worth_of_fence(report.fence_gains), "cells": cells} if cells else None


def _without(one: msgspec.Struct, *names: str) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(one).items() if key not in names}


def _baseline(other: Comparison, unit: str) -> dict[str, Any]:
    return _without(other, "rows") | {"unit": unit, "charged_ratio": other.charged_ratio}


def _compared(compared: ComparedTest | None) -> dict[str, Any]:
    """All values are null if the baseline lacks this test."""
    fields = ComparedTest.__struct_fields__
    return {name: getattr(compared, name) if compared else None for name in fields}


def _test(line: Line) -> dict[str, Any]:
    row = line.row
    return {
        **msgspec.structs.asdict(line.scored),
        **_compared(line.compared[0] if line.compared else None),
        "compared": line.compared,
        "repeats": row.repeats,
        "node_total": line.node_total,
        "devices": row.devices,
        "planned": row.planned,
        "missing": row.missing,
        "pending": row.pending,
        "causes": line.causes,
        "derived": line.derived,
        "sweeps": line.sweeps,
        "latency": row.latency,
        "item_latency": row.item_latency,
        "wait_pct": None if row.wait_share is None else 100 * row.wait_share,
        "peak_memory_mib": row.peak_memory,
        "power_w": row.power_w,
        "power_basis": row.power_basis,
        "power_launches": row.power_launches,
        "energy": [msgspec.structs.asdict(one) | {"items_per_joule": one.items_per_joule} for one in row.energy],
        "telemetry_dropped": row.telemetry_dropped,
        "data": row.work.data,
        "precision": row.work.precision,
        "isolation": row.tiers,
        "marks": row.marks,
        "conditions": row.conditions,
    }

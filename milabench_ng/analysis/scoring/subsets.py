"""What decided the score: groups, bounds, no penalty for spread, no scaling, and each test by its absence. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import get_args

import msgspec

from milabench_ng.analysis.scoring.reference import Reference
from milabench_ng.analysis.scoring.score import (
    Score,
    about,
    charged_parts,
    launches_left,
    level,
    mean_over,
    other_items,
    ratio_of,
    why_unknown,
)
from milabench_ng.analysis.scoring.scored import ScoredRows, ScoredTest, scored_tests
from milabench_ng.analysis.scoring.weights import Groups, Weights
from milabench_ng.analysis.statistics.intervals import Interval, combine
from milabench_ng.analysis.summary.summary import Summary, name_of_row, progression_steps
from milabench_ng.model.catalogue import Bound
from milabench_ng.model.plain import plain

WITHOUT_PENALTY = "without the variance penalty"
WITHOUT_SCALING = "without scaling"
OF_GROUP = "group "
"""Begins the name of what is over the tests of a group."""


class Subset(msgspec.Struct, frozen=True):
    """Some of the tests that have a weight."""

    name: str
    labels: tuple[str, ...]
    left_out: str = ""
    """The test that it is without, if it has all others."""


class SubScore(msgspec.Struct, frozen=True, kw_only=True):
    """The score computed in another way, or over some of the tests. In the score's unit, per device."""

    name: str
    labels: tuple[str, ...]
    weight_pct: float
    """The tests' share of the weights, in percent."""
    per_device: float | None
    """None if one of its tests is missing."""
    interval: Interval | None
    why: str = ""
    left_out: str = ""
    """The test that it is without; empty for the other sub-scores."""


def subsets(rows: Mapping[str, ScoredTest], labels: Sequence[str], groups: Groups) -> list[Subset]:
    """The tests of each group, those without the ones over several devices, and those of each bound."""
    chosen = {
        f"{OF_GROUP}{plain(group)}": tuple(label for label in labels if groups.get(label) == group)
        for group in dict.fromkeys(groups.values())
    }
    steps = progression_steps(list(labels))
    chosen |= {WITHOUT_SCALING: tuple(label for label in labels if label not in steps)} if steps else {}
    for bound in dict.fromkeys([*get_args(Bound), *(rows[label].bound or "" for label in labels if label in rows)]):
        members = tuple(label for label in labels if label in rows and rows[label].bound == bound)
        if bound and members:
            chosen[f"bound by {plain(bound)}"] = members
    return [Subset(name, members) for name, members in chosen.items() if members]


def all_but_one(labels: Sequence[str], groups: Groups) -> list[Subset]:
    """The tests without each of them, where weights have groups: these are a judgement on unlike work."""
    if not groups or len(labels) < 2:
        return []
    return [
        Subset(f"without {plain(name_of_row(one))}", tuple(label for label in labels if label != one), left_out=one)
        for one in labels
    ]


def sub_scores(
    summary: Summary,
    rows: ScoredRows,
    weights: Weights,
    score: Score,
    reference: Reference | None = None,
    *,
    penalize_variance: bool = True,
    groups: Groups = MappingProxyType({}),
) -> tuple[SubScore, ...]:
    """The sub-scores with their intervals. ``rows`` are those of ``summary``, ``weights`` the effective ones."""
    unpunished = scored_tests(summary, weights, penalize_variance=False)
    unlike = {label for label, row in rows.items() if row.of_unknown_items}
    unlike |= other_items(summary, reference, [*rows.keys() & weights]).keys()
    labels = [label for label in weights if label not in score.omitted and label not in unlike]
    lacks = {
        label: f"{label}: {left} missing" if (left := launches_left(summary, label)) else f"{label} missing"
        for label in labels
        if label in score.missing or label not in rows
    }
    made = []
    if penalize_variance and weights:  # all weights may be for steps that need more devices
        one = level(reference, labels, weights, penalize=False)
        made.append(_sub_score(Subset(WITHOUT_PENALTY, tuple(labels)), unpunished, weights, lacks, one))
    for each in (*subsets(rows, labels, groups), *all_but_one(labels, groups)):
        one = level(reference, each.labels, weights, penalize=penalize_variance)
        made.append(_sub_score(each, rows, weights, lacks, one))
    return tuple(made)


def _sub_score(of: Subset, rows: ScoredRows, weights: Weights, lacks: Mapping[str, str], one: float) -> SubScore:
    """``lacks``: what is missing of the rows that are not complete, in words."""
    labels = of.labels
    lacking = [lacks[label] for label in labels if label in lacks]
    value = None if lacking or not labels else ratio_of(mean_over(rows, labels, weights), one)
    parts = charged_parts(rows, labels, weights) if value else []
    estimate = combine(parts)
    return SubScore(
        name=of.name,
        labels=labels,
        weight_pct=100 * sum(weights[label] for label in labels) / sum(weights.values()),
        per_device=value,
        interval=about(value, estimate, one) if value and estimate else None,
        why=", ".join(lacking) if lacking else why_unknown([rows], labels, parts),
        left_out=of.left_out,
    )

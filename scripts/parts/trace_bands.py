"""Makes reference traces from launches: how wide the bands are, and which digests count.

The first batch is the same for all tenants, so the first step has one value, except for arithmetic and, on other GPU
models, different random numbers drawn on the device. From the second step on, tenants read in their own order and draw
their own numbers, and a band says where to expect another tenant.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from milabench_ng.analysis.launch.traces import (
    Bands,
    ReferenceTrace,
    TraceBand,
    Traced,
    TraceDevice,
    TracedNumbers,
    Traces,
    computed,
)
from milabench_ng.analysis.statistics.intervals import t_quantile
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import grouped
from milabench_ng.model.stats import mean, population_std, sample_std
from milabench_ng.records.record import PROBED_STEPS


class Floor(NamedTuple):
    """Least tolerance of a loss and of a gradient norm, as a share of the value."""

    loss: float
    gradient_norm: float


FIRST = {
    "fp32": Floor(0.002, 0.03),
    "tf32": Floor(0.005, 0.05),
    "torch_default": Floor(0.005, 0.05),
    "amp": Floor(0.005, 0.05),
    "bf16": Floor(0.005, 0.05),
    "half_master": Floor(0.005, 0.05),
    "half_master_static": Floor(0.005, 0.05),
    "bf16_master": Floor(0.005, 0.05),
    "half": Floor(0.01, 0.05),
}
"""Floors of the first step by precision: about ten times the observed effect of kernels, threads and precisions, and
twice that of different dropout (docs/methodology/correctness.md)."""
LATER = {
    "fp32": Floor(0.02, 0.1),
    "tf32": Floor(0.02, 0.1),
    "torch_default": Floor(0.02, 0.1),
    "amp": Floor(0.05, 0.2),
    "bf16": Floor(0.05, 0.2),
    "half_master": Floor(0.05, 0.2),
    "half_master_static": Floor(0.05, 0.2),
    "bf16_master": Floor(0.05, 0.2),
    "half": Floor(0.1, 0.2),
}
GROWTH = {"2": 1.0, "5": 1.5, "10": 2.0, "100": 5.0}
"""Factors on ``LATER`` by step, since differences grow."""
AGREEMENT = 0.25
"""Share of the floor: tenants this close at the first step differ only by arithmetic, which the floor allows for."""
START_SHARE = 0.1
"""A number below this share of that at step 1 has the tolerance of that share: near zero, digits mean nothing."""
FALSE_MARKS = 1e-4
"""How often a valid number from another tenant, which reads in a different order, may be outside a band."""
Draws = dict[str, list[float]]
"""The repeats' numbers by place: repeats of a place start from the same seed, so only places are independent."""


def build(suite: str, launches: Iterable[tuple[Traced, str]], made_from: Sequence[str]) -> Traces:
    """Make traces that hold for all ``launches``: successful ones of one suite, with their software keys. Pure.

    A band needs at least two tenants, or two launches of the same one; a digest counts if two launches agree on it and
    no two of the test differ: runs of two machines leave out what compilers choose by timing. Of nodes of different
    sizes, a test over all devices has the trace of the largest. Raises InputError if launches of one test had different
    options or data.
    """
    rows = grouped(launches, lambda pair: pair[0].label)
    return Traces(suite=suite, made_from=tuple(made_from), tests={name: _trace(name, rows[name]) for name in rows})


def merge(made: Traces, kept: Traces) -> Traces:
    """``made``, with the tests, kinds of device, precisions and software that only ``kept`` has.

    Nothing is kept for a test whose options or data have changed. Raises InputError for traces of another suite.
    """
    if made.suite != kept.suite:
        raise InputError(f"one suite at a time, not {made.suite}, {kept.suite}")
    both = {name: _merged(trace, kept.tests.get(name)) for name, trace in made.tests.items()}
    tests = {name: both.get(name) or kept.tests[name] for name in sorted({*both, *kept.tests})}
    sources = tuple(dict.fromkeys((*kept.made_from, *made.made_from)))
    return Traces(suite=made.suite, made_from=sources, tests=tests)


def _merged(made: ReferenceTrace, kept: ReferenceTrace | None) -> ReferenceTrace:
    if kept is None or computed(made) != computed(kept):
        return made
    return msgspec.structs.replace(
        made,
        losses=_joined(made.losses, kept.losses),
        gradient_norms=_joined(made.gradient_norms, kept.gradient_norms),
        digests={**kept.digests, **made.digests},
        blind=made.blind or kept.blind,
    )


def _joined(made: Bands, kept: Bands) -> Bands:
    return {kind: {**kept.get(kind, {}), **made.get(kind, {})} for kind in {**kept, **made}}


def _trace(label: str, launches: Sequence[tuple[Traced, str]]) -> ReferenceTrace:
    ranks = max(one.ranks for one, _ in launches)
    launches = [pair for pair in launches if pair[0].ranks == ranks]
    first = launches[0][0]
    if any(computed(one) != computed(first) for one, _ in launches):
        raise InputError(f"{label}: the launches differ in options or data; take runs of one profile")
    digests: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one, software_key in launches:
        for key, digest in one.digests.items():
            if int(key.rpartition("/")[2]) not in PROBED_STEPS:  # other nonces draw others
                continue
            digests[software_key][key].append(digest)
    return ReferenceTrace(
        since=first.version,
        arguments=first.arguments,
        data=first.data,
        ranks=first.ranks,
        losses=_bands("loss", [(one, one.losses) for one, _ in launches]),
        gradient_norms=_bands("gradient_norm", [(one, one.gradient_norms) for one, _ in launches]),
        digests={
            key: agreed
            for key, found in digests.items()
            if all(len(set(made)) == 1 for made in found.values())
            and (agreed := {at: made[0] for at, made in found.items() if len(made) > 1})
        },
    )


def _bands(quantity: str, launches: Iterable[tuple[Traced, TracedNumbers]]) -> Bands:
    rows: dict[tuple[TraceDevice, str], dict[str, Draws]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for one, numbers in launches:
        for place, step, number in numbers:
            if number is not None:
                rows[one.kind, one.precision][step][place].append(number)
    bands: Bands = {}
    for (kind, precision), steps in rows.items():
        bands.setdefault(kind, {})[precision] = {
            step: band for step in steps if (band := _band(_floor(quantity, precision, step), step, steps))
        }
    return bands


def _floor(quantity: str, precision: str, step: str) -> float | None:
    """Least relative tolerance at a step; None if there is no band. Unknown modes have the widest."""
    if step == "1":
        return float(getattr(FIRST.get(precision, FIRST["half"]), quantity))
    if step not in GROWTH:
        return None
    return GROWTH[step] * float(getattr(LATER.get(precision, LATER["half"]), quantity))


def _band(floor: float | None, step: str, steps: Mapping[str, Draws]) -> TraceBand | None:
    """Where to expect the number of another place: a prediction interval by Student's t over the places.

    Hahn and Meeker, Statistical Intervals (1991), section 4.7; never narrower than ``floor``, and exactly that if all
    places agree on the first step. None if it would be as wide as the number itself and therefore meaningless, as
    around a loss that starts at zero. If there is only one place, its repeats take the role of places, and the band is
    known for this place alone: another tenant reads in its own order. Where they agree on the first step, it holds for
    all, whose first batch is the same.
    """
    draws = steps[step]
    values = list(draws.values()) if len(draws) > 1 else [[number] for each in draws.values() for number in each]
    if floor is None or len(values) < 2:
        return None
    middles = [mean(each) for each in values]
    size = max(
        abs(mean(middles)), START_SHARE * abs(mean([n for each in steps.get("1", draws).values() for n in each]))
    )
    furthest = max(abs(number - mean(middles)) for each in values for number in each)
    if size == 0:
        return None
    if step == "1" and furthest <= AGREEMENT * floor * size:
        return TraceBand(mean(middles), floor * size)
    spread = math.hypot(sample_std(middles), *(population_std(each) / math.sqrt(len(values)) for each in values))
    expected = t_quantile(1 - FALSE_MARKS / 2, len(values) - 1) * spread * math.sqrt(1 + 1 / len(values))
    tolerance = max(floor * size, expected)
    only = next(iter(draws)) if len(draws) == 1 else ""
    return TraceBand(mean(middles), tolerance, only) if tolerance < size else None

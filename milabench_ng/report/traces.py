"""Reference traces: what a test's loss is after steps 1, 10 and 100, and what its parameters become.

A launch outside its band did not compute what the test computes: less work per item, a patched library, a broken
device. Bands hold for one kind of device (a GPU draws other random numbers than a CPU, from the same seed), one
precision, one data set at one scale; digests of parameters only for the same devices, driver and libraries.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from milabench_ng.catalogue import Scalar
from milabench_ng.errors import InputError
from milabench_ng.files import convert_json, parse_json, read_content, refuse
from milabench_ng.records.marks import Mark
from milabench_ng.records.views import DataView, MnbView
from milabench_ng.report.intervals import t_quantile
from milabench_ng.shipped import find
from milabench_ng.stats import mean, population_std, sample_std

TRACES_SCHEMA = 2
Kind = Literal["cpu", "gpu"]
"""Of the devices that a launch worked on; a MIG instance is a part of a GPU."""
FLOORS = {
    "fp32": 0.02,
    "tf32": 0.02,
    "amp": 0.05,
    "bf16": 0.05,
    "half": 0.1,
    "half_master": 0.05,
    "half_master_static": 0.05,
}
"""Least relative tolerance by precision, at step 1: other kernels and another order of sums give other digits."""
GROWTH = {"1": 1.0, "10": 2.0, "100": 5.0}
"""Differences grow with the steps; times the floor."""
START_SHARE = 0.1
"""A loss below this share of the one at step 1 has the tolerance of that share: near zero digits say nothing."""
FALSE_MARKS = 1e-4
"""How often a sound loss of another tenant, who has another seed and reads in another order, may be outside a band."""
PACING = ("max_count", "max_seconds", "sample_duration", "workers")
"""Options that change how long a test goes on, not what it computes."""


class Band(msgspec.Struct, frozen=True):
    """A loss is within ``tolerance`` of ``value``."""

    value: float
    tolerance: float

    def holds(self, loss: float | None) -> bool:
        """Whether ``loss`` (None: not finite) is inside."""
        return loss is not None and abs(loss - self.value) <= self.tolerance

    def deviation(self, step: str, loss: float | None) -> Mark:
        """The mark of a loss that is outside."""
        above = loss is None or loss > self.value
        return Mark(
            kind="loss outside the reference",
            what=f"step {step}, expected {self.value:.6g} +- {self.tolerance:.2g}",
            value=loss,
            limit=self.value + (self.tolerance if above else -self.tolerance),
        )


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What one test computes."""

    arguments: dict[str, Scalar | None]
    """All options but those of pacing: the trace holds for these only."""
    data: tuple[str, str, float] | None
    """Name, kind and scale of the data set."""
    losses: dict[Kind, dict[str, dict[str, Band]]]
    """By kind of device, by the precision that ran, by step."""
    digests: dict[str, dict[str, str]] = {}
    """Of the parameters, by software key, by ``precision/device/rank/step``."""


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """The traces of a suite, by label."""

    schema: int = TRACES_SCHEMA
    suite: str
    made_from: tuple[str, ...] = ()
    """Hardware and versions of the runs that these were made from."""
    tests: dict[str, Trace]


class Traced(msgspec.Struct, frozen=True):
    """What a record says about this."""

    label: str
    arguments: dict[str, Scalar | None]
    data: tuple[str, str, float] | None
    kind: Kind
    precision: str
    losses: tuple[tuple[str, str, float | None], ...]
    """Place (``device/rank``), step and loss."""
    digests: dict[str, str]


def traced(mnb: MnbView) -> Traced:
    """What the record of a launch says."""
    precision = (mnb.precision.ran if mnb.precision else None) or "unknown"
    places = [(f"{mnb.launch.devices[number]}/{number}", rank) for number, rank in enumerate(mnb.ranks)]
    return Traced(
        label=mnb.label,
        arguments={name: value for name, value in mnb.launch.arguments.items() if name not in PACING},
        data=_data(mnb.data),
        kind="cpu" if all(device.kind == "cpu" for device in mnb.devices) else "gpu",
        precision=precision,
        losses=tuple((place, step, loss) for place, rank in places for step, loss in rank.losses.items()),
        digests={
            f"{precision}/{place}/{step}": digest for place, rank in places for step, digest in rank.digests.items()
        },
    )


def _data(data: DataView | None) -> tuple[str, str, float] | None:
    return None if data is None else (data.name, data.kind, data.scale)


COMPARED = "compared"


class Compared(msgspec.Struct, frozen=True):
    """What a trace says of a launch."""

    deviations: tuple[Mark, ...] = ()
    """Where the launch left its trace."""
    lacking: str = ""
    """Of what there is no reference, where the launch could not be compared with any."""

    @property
    def sentence(self) -> str:
        """Whether there was a comparison."""
        return f"no reference for {self.lacking}" if self.lacking else COMPARED


def compare(seen: Traced, trace: Trace | None, software_key: str) -> Compared:
    """A launch of a run with this software against the trace of its test, which may hold for something else. Pure."""
    fits = trace is not None and (seen.arguments, seen.data) == (trace.arguments, trace.data)
    bands = trace.losses.get(seen.kind, {}).get(seen.precision, {}) if trace and fits else {}
    known = trace.digests.get(software_key, {}) if trace and fits else {}
    banded = [(step, loss) for _, step, loss in seen.losses if step in bands]
    digested = [(known[key], digest) for key, digest in seen.digests.items() if key in known]
    if not banded and not digested:
        return Compared(lacking=_described(seen))
    found = [bands[step].deviation(step, loss) for step, loss in banded if not bands[step].holds(loss)]
    if any(expected != digest for expected, digest in digested):
        found.append(Mark(kind="parameters outside the reference"))
    return Compared(deviations=tuple(dict.fromkeys(found)))


def _described(seen: Traced) -> str:
    """All that a trace is tied to but the options."""
    data = "" if seen.data is None else f", {seen.data[0]} ({seen.data[1]}, scale {seen.data[2]:g})"
    return f"{seen.kind}, {seen.precision}{data} and these options"


def build(suite: str, launches: Iterable[tuple[Traced, str]], made_from: Sequence[str]) -> Traces:
    """The traces that hold for all of ``launches``, successful ones of one suite with their software keys. Pure.

    A band takes two tenants at least, or two launches of the same; a digest counts where two launches agree on it and
    none differs. Raises InputError where launches of one test had different options or data.
    """
    rows: dict[str, list[tuple[Traced, str]]] = defaultdict(list)
    for launch, key in launches:
        rows[launch.label].append((launch, key))
    return Traces(suite=suite, made_from=tuple(made_from), tests={name: _trace(name, rows[name]) for name in rows})


def _trace(label: str, launches: Sequence[tuple[Traced, str]]) -> Trace:
    first = launches[0][0]
    if any((one.arguments, one.data) != (first.arguments, first.data) for one, _ in launches):
        raise InputError(f"{label}: the launches differ in options or data; make traces from runs of one profile")
    losses: dict[tuple[Kind, str], dict[str, Draws]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    digests: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one, software_key in launches:
        for place, step, loss in one.losses:
            if step in GROWTH and loss is not None:
                losses[one.kind, one.precision][step][place].append(loss)
        for key, digest in one.digests.items():
            digests[software_key][key].append(digest)
    bands: dict[Kind, dict[str, dict[str, Band]]] = {}
    for (kind, precision), steps in losses.items():
        bands.setdefault(kind, {})[precision] = {
            step: band
            for step, draws in steps.items()
            if (band := _band(precision, step, draws, steps.get("1", draws)))
        }
    return Trace(
        arguments=first.arguments,
        data=first.data,
        losses=bands,
        digests={
            key: agreed
            for key, found in digests.items()
            if (agreed := {at: made[0] for at, made in found.items() if len(made) > 1 and len(set(made)) == 1})
        },
    )


Draws = dict[str, list[float]]
"""The losses of the repeats, by place: repeats of a place begin from the same seed, so only places are independent."""


def _band(precision: str, step: str, draws: Draws, at_start: Draws) -> Band | None:
    """Where the loss of another place is to be expected: a prediction interval by Student's t over the places.

    Hahn and Meeker, Statistical Intervals (1991), section 4.7; never narrower than the precision allows. None where it
    would be wider than the loss itself and say nothing, as where tenants play different games. Where there is one place
    only (a progression's first step), its repeats stand for the places.
    """
    values = list(draws.values()) if len(draws) > 1 else [[loss] for each in draws.values() for loss in each]
    if len(values) < 2:
        return None
    middles = [mean(each) for each in values]
    size = max(abs(mean(middles)), START_SHARE * abs(mean([loss for each in at_start.values() for loss in each])))
    spread = math.hypot(sample_std(middles), *(population_std(each) / math.sqrt(len(values)) for each in values))
    expected = t_quantile(1 - FALSE_MARKS / 2, len(values) - 1) * spread * math.sqrt(1 + 1 / len(values))
    floor = FLOORS.get(precision, max(FLOORS.values())) * GROWTH[step] * size
    return Band(mean(middles), max(floor, expected)) if expected < size else None


def load_traces(suite: str) -> Mapping[str, Trace]:
    """The shipped traces of a suite, by label; none where there are none."""
    path = find("baselines/traces", suite)
    return {} if path is None else decode_traces(read_content(path), str(path)).tests


def decode_traces(content: bytes, source: str) -> Traces:
    """Stored traces; ``source`` is the file's name. Raises InputError, with file and place, for what cannot be read."""
    traces = convert_json(parse_json(content, source), Traces, source, "scripts/traces makes traces of a result folder")
    if traces.schema != TRACES_SCHEMA:
        refuse(source, f"schema {traces.schema}; this version of mnb reads {TRACES_SCHEMA}; make them again")
    return traces


def encode_traces(traces: Traces) -> bytes:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(traces), indent=1) + b"\n"

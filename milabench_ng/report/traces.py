"""Reference traces: what a test's loss is after steps 1, 10 and 100, and what its parameters become.

A launch outside its band did not compute what the test computes: less work per item, a patched library, a broken
device. Bands hold for any hardware; digests of parameters only for the same devices, driver and libraries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from milabench_ng.catalogue import Scalar
from milabench_ng.errors import InputError
from milabench_ng.files import convert_json, parse_json, read_content, refuse
from milabench_ng.records.views import DataView, MnbView
from milabench_ng.shipped import find
from milabench_ng.stats import mean, population_std

TRACES_SCHEMA = 1
FLOORS = {"fp32": 0.02, "tf32": 0.02, "amp": 0.05, "bf16": 0.05, "half": 0.1, "half_master": 0.05}
"""Least relative tolerance by precision, at step 1: other kernels and another order of sums give other digits."""
GROWTH = {"1": 1.0, "10": 2.0, "100": 5.0}
"""Differences grow with the steps; times the floor."""
START_SHARE = 0.1
"""A loss below this share of the one at step 1 has the tolerance of that share: near zero digits say nothing."""
DEVIATIONS = 6.0
"""Tolerance in standard deviations of the launches that the band was made from: tenants read in different orders."""
PACING = ("max_count", "max_seconds", "sample_duration", "workers")
"""Options that change how long a test goes on, not what it computes."""


class Band(msgspec.Struct, frozen=True):
    """A loss is within ``tolerance`` of ``value``."""

    value: float
    tolerance: float

    def holds(self, loss: float | None) -> bool:
        """Whether ``loss`` (None: not finite) is inside."""
        return loss is not None and abs(loss - self.value) <= self.tolerance


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What one test computes."""

    arguments: dict[str, Scalar | None]
    """All options but those of pacing: the trace holds for these only."""
    data: tuple[str, str, float] | None
    """Name, kind and scale of the data set."""
    losses: dict[str, dict[str, Band]]
    """By the precision that ran, by step."""
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
    precision: str
    losses: tuple[tuple[str, float | None], ...]
    """Step and loss, of all ranks."""
    digests: dict[str, str]


def traced(mnb: MnbView) -> Traced:
    """What the record of a launch says."""
    precision = (mnb.precision.ran if mnb.precision else None) or "unknown"
    return Traced(
        label=mnb.label,
        arguments={name: value for name, value in mnb.launch.arguments.items() if name not in PACING},
        data=_data(mnb.data),
        precision=precision,
        losses=tuple(pair for rank in mnb.ranks for pair in rank.losses.items()),
        digests={
            f"{precision}/{mnb.launch.devices[number]}/{number}/{step}": digest
            for number, rank in enumerate(mnb.ranks)
            for step, digest in rank.digests.items()
        },
    )


def _data(data: DataView | None) -> tuple[str, str, float] | None:
    return None if data is None else (data.name, data.kind, data.scale)


def deviations(seen: Traced, trace: Trace, software_key: str) -> tuple[str, ...]:
    """In words, where a launch of a run with this software left its trace; nothing where the trace is for other options
    or data. Pure."""
    if seen.arguments != trace.arguments or seen.data != trace.data:
        return ()
    bands = trace.losses.get(seen.precision, {})
    found = [
        f"outside the reference: loss {_number(loss)} at step {step}, expected {bands[step].value:.6g} "
        f"+- {bands[step].tolerance:.2g}"
        for step, loss in seen.losses
        if step in bands and not bands[step].holds(loss)
    ]
    known = trace.digests.get(software_key, {})
    if any(key in known and known[key] != digest for key, digest in seen.digests.items()):
        found.append("outside the reference: parameters differ from those that this software makes")
    return tuple(dict.fromkeys(found))


def _number(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.6g}"


def build(suite: str, launches: Iterable[tuple[Traced, str]], made_from: Sequence[str]) -> Traces:
    """The traces that hold for all of ``launches``, successful ones of one suite with their software keys. Pure.

    A digest counts where at least two launches agree on it and none differs. Raises InputError where launches of one
    test had different options or data.
    """
    rows: dict[str, list[tuple[Traced, str]]] = defaultdict(list)
    for launch, key in launches:
        rows[launch.label].append((launch, key))
    return Traces(suite=suite, made_from=tuple(made_from), tests={name: _trace(name, rows[name]) for name in rows})


def _trace(label: str, launches: Sequence[tuple[Traced, str]]) -> Trace:
    first = launches[0][0]
    if any((one.arguments, one.data) != (first.arguments, first.data) for one, _ in launches):
        raise InputError(f"{label}: the launches differ in options or data; make traces from runs of one profile")
    losses: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    digests: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one, software_key in launches:
        for step, loss in one.losses:
            if step in GROWTH and loss is not None:
                losses[one.precision][step].append(loss)
        for key, digest in one.digests.items():
            digests[software_key][key].append(digest)
    return Trace(
        arguments=first.arguments,
        data=first.data,
        losses={
            precision: {step: _band(precision, step, values, steps.get("1", values)) for step, values in steps.items()}
            for precision, steps in losses.items()
        },
        digests={
            key: agreed
            for key, found in digests.items()
            if (agreed := {at: made[0] for at, made in found.items() if len(made) > 1 and len(set(made)) == 1})
        },
    )


def _band(precision: str, step: str, values: Sequence[float], at_start: Sequence[float]) -> Band:
    middle = mean(values)
    size = max(abs(middle), START_SHARE * abs(mean(at_start)))
    floor = FLOORS.get(precision, max(FLOORS.values())) * GROWTH[step] * size
    return Band(middle, max(floor, DEVIATIONS * population_std(values)))


def load_traces(suite: str) -> Mapping[str, Trace]:
    """The shipped traces of a suite, by label; none where there are none."""
    path = find("baselines/traces", suite)
    return {} if path is None else decode_traces(read_content(path), str(path)).tests


def decode_traces(content: bytes, source: str) -> Traces:
    """Stored traces; ``source`` is the file's name. Raises InputError, with file and place, for what cannot be read."""
    traces = convert_json(parse_json(content, source), Traces, source, "scripts/traces makes traces of a result folder")
    if traces.schema > TRACES_SCHEMA:
        refuse(source, f"schema {traces.schema}; this version of mnb reads up to {TRACES_SCHEMA}")
    return traces


def encode_traces(traces: Traces) -> bytes:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(traces), indent=1) + b"\n"

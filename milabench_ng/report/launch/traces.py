"""Reference traces: what a test's loss and gradient norm are at a few steps, and what its parameters become.

A launch outside its bands did not compute what the test computes: less work per item, a patched library, a broken
device. Bands hold for one kind of device (a GPU draws other random numbers than a CPU, from the same seed), one
precision, one data set at one scale; digests of parameters only for the same devices, driver and libraries.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

import msgspec

from milabench_ng.catalogue import Scalar
from milabench_ng.files import convert_json, parse_json, read_content, refuse
from milabench_ng.records.marks import Mark
from milabench_ng.records.views import DataView, MnbView
from milabench_ng.shipped import find

TRACES_SCHEMA = 3
TraceDevice = Literal["cpu", "gpu"]
"""Of the devices that a launch worked on; a MIG instance is a part of a GPU."""
PACING = ("max_count", "max_seconds", "sample_duration", "workers")
"""Options that change how long a test goes on, not what it computes."""
SCALED = ("amp", "half_master")
"""Modes whose first gradients may leave the range of fp16 on a sound device: such steps are skipped."""
Strength = Literal["strong", "weak", "digest only"]
STRENGTHS: tuple[Strength, ...] = get_args(Strength)
ROUNDING = 1 + 1e-9
STRONG_LOSS, STRONG_NORM = 0.01 * ROUNDING, 0.05 * ROUNDING
"""A strong trace knows loss and gradient norm of the first step to these shares of themselves."""


OutsideKind = Literal["loss outside the reference", "gradient norm outside the reference"]


class TraceBand(msgspec.Struct, frozen=True):
    """A number is within ``tolerance`` of ``value``."""

    value: float
    tolerance: float

    @property
    def share(self) -> float:
        """The tolerance as a share of the value: a change below it is not seen."""
        return self.tolerance / abs(self.value) if self.value else math.inf

    def holds(self, number: float | None) -> bool:
        """Whether ``number`` (None: not finite) is inside."""
        return number is not None and abs(number - self.value) <= self.tolerance

    def deviation(self, kind: OutsideKind, step: str, number: float | None) -> Mark:
        """The mark of a number that is outside."""
        above = number is None or number > self.value
        return Mark(
            kind=kind,
            what=f"step {step}, expected {self.value:.6g} +- {self.tolerance:.2g}",
            value=number,
            limit=self.value + (self.tolerance if above else -self.tolerance),
        )


Bands = dict[TraceDevice, dict[str, dict[str, TraceBand]]]
"""By kind of device, by the precision that ran, by step."""


class ReferenceTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What one test computes."""

    since: str = ""
    """The version of mnb from which on the test computes this; empty for all."""
    arguments: dict[str, Scalar | None]
    """All options but those of pacing: the trace holds for these only."""
    data: tuple[str, str, float] | None
    """Name, kind and scale of the data set."""
    losses: Bands
    gradient_norms: Bands = {}
    digests: dict[str, dict[str, str]] = {}
    """Of the parameters, by software key, by ``precision/device/rank/step``."""
    blind: str = ""
    """What less work is known to stay inside the bands of the first step, however narrow, in words: it makes the trace
    weak."""


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """The traces of a suite, by label."""

    schema: int = TRACES_SCHEMA
    suite: str
    made_from: tuple[str, ...] = ()
    """Hardware and versions of the runs that these were made from."""
    tests: dict[str, ReferenceTrace]


TracedNumbers = tuple[tuple[str, str, float | None], ...]
"""Place (``device/rank``), step and number; None where it was not finite."""


class Traced(msgspec.Struct, frozen=True):
    """What a record says about this."""

    label: str
    arguments: dict[str, Scalar | None]
    data: tuple[str, str, float] | None
    kind: TraceDevice
    precision: str
    losses: TracedNumbers
    gradient_norms: TracedNumbers
    digests: dict[str, str]
    steps: dict[str, int] = {}
    """By place: how many ran at least, as the slices say; empty where the launch failed."""
    skipped: dict[str, int] = {}
    """By place: how many of them a dynamic loss scale skipped, as the record says."""

    @property
    def overflown(self) -> frozenset[tuple[str, str]]:
        """Places and steps whose gradients left the range of fp16: no more of them than were skipped."""
        null: dict[str, list[str]] = defaultdict(list)
        for place, step, norm in self.gradient_norms if self.precision in SCALED else ():
            if norm is None:
                null[place].append(step)
        told = {place: steps for place, steps in null.items() if len(steps) <= self.skipped.get(place, 0)}
        return frozenset((place, step) for place, steps in told.items() for step in steps)

    version: str = ""
    """Of mnb, which made it."""


def traced(mnb: MnbView) -> Traced:
    """What the record of a launch says."""
    precision = (mnb.precision.ran if mnb.precision else None) or "unknown"
    places = [(f"{mnb.launch.slot_ids[number]}/{number}", rank) for number, rank in enumerate(mnb.ranks)]
    return Traced(
        label=mnb.label,
        version=mnb.version,
        arguments={name: value for name, value in mnb.launch.arguments.items() if name not in PACING},
        data=_data(mnb.data),
        kind="cpu" if all(device.kind == "cpu" for device in mnb.devices) else "gpu",
        precision=precision,
        losses=tuple((place, step, loss) for place, rank in places for step, loss in rank.losses.items()),
        gradient_norms=tuple(
            (place, step, norm) for place, rank in places for step, norm in rank.gradient_norms.items()
        ),
        digests={
            f"{precision}/{place}/{step}": digest for place, rank in places for step, digest in rank.digests.items()
        },
        steps={place: sum(row.steps for row in rank.slices) for place, rank in places} if mnb.failure is None else {},
        skipped={place: rank.skipped.skipped for place, rank in places if rank.skipped is not None},
    )


def _data(data: DataView | None) -> tuple[str, str, float] | None:
    return None if data is None else (data.name, data.kind, data.scale)


COMPARED = "compared"


class Compared(msgspec.Struct, frozen=True):
    """What a trace says of a launch."""

    deviations: tuple[Mark, ...] = ()
    """Where the launch left its trace."""
    strength: Strength | None = None
    """Of what it was compared with; None where there was nothing."""
    lacking: str = ""
    """Of what there is no reference, where the launch could not be compared with any."""

    @property
    def sentence(self) -> str:
        """Whether there was a comparison, and how strong it was."""
        return f"no reference for {self.lacking}" if self.lacking else f"{COMPARED}: {self.strength}"


def compare(seen: Traced, trace: ReferenceTrace | None, software_key: str) -> Compared:
    """A launch of a run with this software against the trace of its test, which may hold for something else. Pure."""
    if trace is None or (seen.arguments, seen.data) != (trace.arguments, trace.data):
        return Compared(lacking=_described(seen))
    if _release(seen.version) < _release(trace.since):
        return Compared(lacking=f"mnb {seen.version or 'of no version'}, before {trace.since}")
    loss_bands, norm_bands = (
        at.get(seen.kind, {}).get(seen.precision, {}) for at in (trace.losses, trace.gradient_norms)
    )
    losses = _within(seen, loss_bands, seen.losses)
    norms = _within(seen, norm_bands, seen.gradient_norms)
    known = trace.digests.get(software_key, {})
    digested = [(known[key], digest) for key, digest in seen.digests.items() if key in known]
    found = [
        *_deviations("loss outside the reference", seen, loss_bands, seen.losses),
        *_deviations("gradient norm outside the reference", seen, norm_bands, seen.gradient_norms),
        *_left_out("loss", seen, loss_bands, seen.losses),
        *_left_out("gradient norm", seen, norm_bands, seen.gradient_norms),
        *_unlearned(seen, loss_bands, norm_bands),
    ]
    if any(expected != digest for expected, digest in digested):
        found.append(Mark(kind="parameters outside the reference"))
    if not losses and not norms and not digested:
        return Compared(tuple(dict.fromkeys(found)), "weak") if found else Compared(lacking=_described(seen))
    return Compared(deviations=tuple(dict.fromkeys(found)), strength=strength(losses, norms, trace.blind))


def _release(version: str) -> tuple[int, ...]:
    """``"0.2.0"`` as numbers; those of an empty or odd version come before all."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def strength(losses: Mapping[str, TraceBand], gradient_norms: Mapping[str, TraceBand], blind: str = "") -> Strength:
    """What a comparison with these bands, by step, is worth. ``blind``: that of the trace.

    It is strong where less work in the first step could hardly stay inside: there the loss is known within 1 % and the
    gradient norm within 5 %. docs/methodology.md has what half of a batch and other savings change.
    """
    if not losses and not gradient_norms:
        return "digest only"
    loss, norm = losses.get("1"), gradient_norms.get("1")
    known = (
        not blind and loss is not None and norm is not None and loss.share <= STRONG_LOSS and norm.share <= STRONG_NORM
    )
    return "strong" if known else "weak"


def _within(seen: Traced, bands: Mapping[str, TraceBand], numbers: TracedNumbers) -> dict[str, TraceBand]:
    """The bands that all of a launch was compared with, by step."""
    compared = {step for place, step, number in numbers if number is not None or (place, step) not in seen.overflown}
    skipped = {step for place, step, number in numbers if number is None and (place, step) in seen.overflown}
    return {step: band for step, band in bands.items() if step in compared - skipped}


def _deviations(
    kind: OutsideKind, seen: Traced, bands: Mapping[str, TraceBand], numbers: TracedNumbers
) -> Iterator[Mark]:
    for place, step, number in numbers:
        skipped = number is None and (place, step) in seen.overflown
        if step in bands and not skipped and not bands[step].holds(number):
            yield bands[step].deviation(kind, step, number)


def _left_out(what: str, seen: Traced, bands: Mapping[str, TraceBand], numbers: TracedNumbers) -> Iterator[Mark]:
    """Steps with a band that ran, and of which the record holds nothing: not even that they were skipped."""
    there = {(place, step) for place, step, _ in numbers}
    for place, steps in seen.steps.items():
        for step in bands:
            if int(step) <= steps and (place, step) not in there:
                yield Mark(kind="not recorded", what=f"{what} at step {step}")


def _unlearned(seen: Traced, losses: Mapping[str, TraceBand], norms: Mapping[str, TraceBand]) -> Iterator[Mark]:
    """A gradient of nothing before the test has learned all, a loss that stays what it is where that of the test moves.

    Such numbers may lie inside wide bands, or at steps that have none.
    """
    lost = {(place, step): loss for place, step, loss in seen.losses}
    for place, step, norm in seen.gradient_norms:
        learned = any(int(known) <= int(step) and band.holds(0.0) for known, band in norms.items())
        if norm == 0 and norms and not learned and lost.get((place, step)) != 0:
            yield Mark(kind="nothing learned", what=f"gradient norm at step {step}", value=norm)
    for each in dict.fromkeys(place for place, _, _ in seen.losses):
        own = {step: loss for place, step, loss in seen.losses if place == each}
        moves = len({losses[step].value for step in own if step in losses}) > 1
        if moves and len(set(own.values())) == 1 and (loss := own[next(iter(own))]) is not None:
            yield Mark(kind="nothing learned", what="loss at all recorded steps", value=loss)


def _described(seen: Traced) -> str:
    """All that a trace is tied to but the options."""
    data = "" if seen.data is None else f", {seen.data[0]} ({seen.data[1]}, scale {seen.data[2]:g})"
    return f"{seen.kind}, {seen.precision}{data} and these options"


def load_traces(suite: str) -> Mapping[str, ReferenceTrace]:
    """The shipped traces of a suite, by label; none where there are none."""
    path = find("baselines/traces", suite)
    return {} if path is None else decode_traces(read_content(path), str(path)).tests


def decode_traces(content: bytes, source: str) -> Traces:
    """Stored traces; ``source`` is the file's name. Raises InputError, with file and place, for what cannot be read."""
    traces = convert_json(parse_json(content, source), Traces, source, "scripts/traces makes traces of a result folder")
    if traces.schema not in (2, TRACES_SCHEMA):  # 2 had no gradient norms
        refuse(source, f"schema {traces.schema}; this version of mnb reads 2 and {TRACES_SCHEMA}; make them again")
    return msgspec.structs.replace(traces, schema=TRACES_SCHEMA)


def encode_traces(traces: Traces) -> bytes:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(traces), indent=1) + b"\n"

"""Reference traces: a test's loss and gradient norm at a few steps, and its resulting parameters.

A launch outside its bands did not compute what the test computes: less work per item, a patched library, a broken
device. Bands apply to one kind of device (from the same seed, a GPU draws other random numbers than a CPU), one
precision, and one dataset at one scale; digests of parameters apply only to the same devices, driver and libraries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

import msgspec

from milabench_ng.model.catalogue import FirstLoss, Scalar
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import convert_json, parse_json, read_content, refuse
from milabench_ng.model.grouping import gathered
from milabench_ng.model.shipped import find
from milabench_ng.records.marks import Mark
from milabench_ng.records.origin import release
from milabench_ng.records.precision_seen import SCALED
from milabench_ng.records.record import PROBED_STEPS, Mnb, kind_word
from milabench_ng.records.work import Work

TRACES_SCHEMA = 3
TraceDevice = Literal["cpu", "gpu"]
"""The kind of a launch's devices; a MIG instance is part of a GPU."""
Strength = Literal["strong", "weak", "digest only", "first loss only"]
STRENGTHS: tuple[Strength, ...] = get_args(Strength)
ROUNDING = 1 + 1e-9
STRONG_LOSS, STRONG_NORM = 0.01 * ROUNDING, 0.05 * ROUNDING
"""A strong trace bounds the loss and gradient norm of the first step to these shares of their values."""


OutsideKind = Literal["loss outside the reference", "gradient norm outside the reference"]


class TraceBand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A band: a number must be within ``tolerance`` of ``value``."""

    value: float
    tolerance: float
    place: str = ""
    """The only place (``device/rank``) for which it is known, if one made it; empty: all."""

    def applies(self, place: str) -> bool:
        """Whether a number of ``place`` can be compared with it."""
        return self.place in ("", place)

    @property
    def share(self) -> float:
        """The tolerance as a share of the value: smaller changes go unnoticed."""
        return self.tolerance / abs(self.value) if self.value else math.inf

    def holds(self, number: float | None) -> bool:
        """Whether ``number`` (None: not finite) is inside."""
        return number is not None and abs(number - self.value) <= self.tolerance

    def deviation(self, kind: OutsideKind, step: str, number: float | None) -> Mark:
        above = number is None or number > self.value
        return Mark(
            kind=kind,
            what=f"step {step}, expected {self.value:.6g} +- {self.tolerance:.2g}",
            value=number,
            limit=self.value + (self.tolerance if above else -self.tolerance),
        )


Bands = dict[TraceDevice, dict[str, dict[str, TraceBand]]]
"""Bands by kind of device, by the precision that ran, by step."""


class ReferenceTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What one test computes."""

    since: str = ""
    """The first version of mnb in which the test computes this; empty for all."""
    arguments: dict[str, Scalar | None]
    """All options except those of pace and length: the trace applies only to these."""
    data: tuple[str, str, float] | None
    """Name, kind and scale of the dataset."""
    ranks: int = 1
    """The number of a launch's ranks, whose gradients are averaged."""
    losses: Bands
    gradient_norms: Bands = {}
    digests: dict[str, dict[str, str]] = {}
    """Digests of the parameters, by software key, by ``precision/device/rank/step``."""
    blind: str = ""
    """In words, reduced work that is known to stay inside the first step's bands, however narrow: it makes the trace
    weak."""


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """The traces of a suite, by label."""

    schema: int = TRACES_SCHEMA
    suite: str
    made_from: tuple[str, ...] = ()
    """Hardware and versions of the runs behind these traces."""
    tests: dict[str, ReferenceTrace]


TracedNumbers = tuple[tuple[str, str, float | None], ...]
"""Place (``device/rank``), step and number; None if it was not finite."""


class Traced(msgspec.Struct, frozen=True):
    """The traced values of a record."""

    label: str
    arguments: dict[str, Scalar | None]
    data: tuple[str, str, float] | None
    kind: TraceDevice
    precision: str
    losses: TracedNumbers
    gradient_norms: TracedNumbers
    digests: dict[str, str]
    ranks: int = 1
    steps: dict[str, int] = {}
    """By place: the least number of steps that ran, according to the slices; empty if the launch failed."""
    skipped: dict[str, int] = {}
    """By place: how many steps a dynamic loss scale skipped, according to the record."""

    @property
    def overflown(self) -> frozenset[tuple[str, str]]:
        """Places and steps whose gradients overflowed fp16, unless there are more of them than skipped steps."""
        norms = self.gradient_norms if self.precision in SCALED else ()
        null = gathered((place, step) for place, step, norm in norms if norm is None)
        told = {place: steps for place, steps in null.items() if len(steps) <= self.skipped.get(place, 0)}
        return frozenset((place, step) for place, steps in told.items() for step in steps)

    version: str = ""
    """The version of mnb that made the record."""


def traced(mnb: Mnb, work: Work) -> Traced:
    """Extract the traced values from a launch's record; ``work`` is the launch's."""
    precision = (mnb.precision.ran if mnb.precision else None) or "unknown"
    places = [(f"{mnb.launch.slot_ids[number]}/{number}", rank) for number, rank in enumerate(mnb.ranks)]
    return Traced(
        label=mnb.label,
        version=mnb.version,
        arguments=work.options_that_change("work", "numbers", "precision"),
        data=(mnb.data.name, mnb.data.kind, mnb.data.scale) if mnb.data else None,
        kind="cpu" if all(device.kind == "cpu" for device in mnb.devices) else "gpu",
        precision=precision,
        ranks=len(places),
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


COMPARED = "compared"


def computed(one: Traced | ReferenceTrace) -> tuple[object, ...]:
    """All that decides which numbers a test yields, except device and precision."""
    return one.arguments, one.data, one.ranks


class Compared(msgspec.Struct, frozen=True):
    """The result of comparing a launch with a trace."""

    deviations: tuple[Mark, ...] = ()
    """Where the launch deviated from its trace."""
    strength: Strength | None = None
    """The strength of the comparison; None if there was none."""
    lacking: str = ""
    """What lacks a reference, if the launch could not be compared."""

    @property
    def sentence(self) -> str:
        """Whether there was a comparison, and how strong it was."""
        return f"no reference trace for {self.lacking}" if self.lacking else f"{COMPARED}: {self.strength}"


def compare(seen: Traced, trace: ReferenceTrace | None, software_key: str) -> Compared:
    """Compare a launch, run with this software, with the trace of its test, which may not apply to it. Pure."""
    if trace is None or computed(seen) != computed(trace):
        return Compared(lacking=_described(seen))
    if release(seen.version) < release(trace.since):
        return Compared(lacking=f"mnb {seen.version or 'of no version'}, before {trace.since}")
    loss_bands, norm_bands = (
        at.get(seen.kind, {}).get(seen.precision, {}) for at in (trace.losses, trace.gradient_norms)
    )
    losses = _within(seen, loss_bands, seen.losses)
    norms = _within(seen, norm_bands, seen.gradient_norms)
    known = trace.digests.get(software_key, {})
    digested = [(known[key], digest) for key, digest in seen.digests.items() if key in known]
    found = [
        *deviations("loss outside the reference", seen, loss_bands, seen.losses),
        *deviations("gradient norm outside the reference", seen, norm_bands, seen.gradient_norms),
        *left_out("loss", seen, loss_bands, seen.losses),
        *left_out("gradient norm", seen, norm_bands, seen.gradient_norms),
        *_undigested(seen, known),
        *_unlearned(seen, loss_bands, norm_bands),
    ]
    if any(expected != digest for expected, digest in digested):
        found.append(Mark(kind="parameters outside the reference"))
    if not losses and not norms and not digested:
        return Compared(tuple(dict.fromkeys(found)), "weak") if found else Compared(lacking=_described(seen))
    return Compared(deviations=tuple(dict.fromkeys(found)), strength=strength(losses, norms, trace.blind))


def compare_first_loss(seen: Traced, first_loss: FirstLoss) -> Compared:
    """Compare a launch with what its workload declares where no trace applies: the loss of the first step by theory.

    How the weights are made, with the options, says it: whatever the device, the precision, the data and the software.
    """
    try:
        band = TraceBand(first_loss.of(seen.arguments), first_loss.margin(seen.arguments))
    except InputError as error:  # a record without an option that its workload has
        return Compared(lacking=f"these options ({error})")
    bands = {"1": band}
    found = [
        *deviations("loss outside the reference", seen, bands, seen.losses),
        *left_out("loss", seen, bands, seen.losses),
    ]
    return Compared(deviations=tuple(dict.fromkeys(found)), strength="first loss only")


def strength(losses: Mapping[str, TraceBand], gradient_norms: Mapping[str, TraceBand], blind: str = "") -> Strength:
    """The strength of a comparison with these bands (by step). ``blind``: that of the trace.

    It is strong if reduced work in the first step could hardly stay inside: if the loss is known within 1 % and the
    gradient norm within 5 %. docs/methodology/correctness.md lists the effects of half a batch and other savings.
    """
    if not losses and not gradient_norms:
        return "digest only"
    loss, norm = losses.get("1"), gradient_norms.get("1")
    known = (
        not blind and loss is not None and norm is not None and loss.share <= STRONG_LOSS and norm.share <= STRONG_NORM
    )
    return "strong" if known else "weak"


def _within(seen: Traced, bands: Mapping[str, TraceBand], numbers: TracedNumbers) -> dict[str, TraceBand]:
    """The bands, by step, that the whole launch was compared with."""
    judged = [each for each in numbers if each[1] in bands and bands[each[1]].applies(each[0])]
    compared = {step for place, step, number in judged if number is not None or (place, step) not in seen.overflown}
    skipped = {step for place, step, number in judged if number is None and (place, step) in seen.overflown}
    return {step: band for step, band in bands.items() if step in compared - skipped}


def deviations(
    kind: OutsideKind, seen: Traced, bands: Mapping[str, TraceBand], numbers: TracedNumbers
) -> Iterator[Mark]:
    for place, step, number in numbers:
        skipped = number is None and (place, step) in seen.overflown
        band = bands.get(step)
        if band is not None and band.applies(place) and not skipped and not band.holds(number):
            yield band.deviation(kind, step, number)


def left_out(what: str, seen: Traced, bands: Mapping[str, TraceBand], numbers: TracedNumbers) -> Iterator[Mark]:
    """Steps that have a band and ran, but are missing from the record, even as skipped."""
    there = {(place, step) for place, step, _ in numbers}
    for place, steps in seen.steps.items():
        for step, band in bands.items():
            if band.applies(place) and int(step) <= steps and (place, step) not in there:
                yield Mark(kind="not recorded", what=f"{what} at step {step}")


def _undigested(seen: Traced, known: Mapping[str, str]) -> Iterator[Mark]:
    """Digests that the same software on the same devices left, and that are missing from the record."""
    for key in known:
        precision, device, rank, step = key.split("/") if key.count("/") == 3 else ("", "", "", "0")
        place = f"{device}/{rank}"
        if precision == seen.precision and int(step) <= seen.steps.get(place, -1) and key not in seen.digests:
            yield Mark(kind="not recorded", what=f"digest of the parameters at step {step}")


def _unlearned(seen: Traced, losses: Mapping[str, TraceBand], norms: Mapping[str, TraceBand]) -> Iterator[Mark]:
    """A zero gradient before the test has learned everything, or a constant loss where the test's own changes.

    Such numbers may lie inside wide bands, or at steps that have none.
    """
    lost = {(place, step): loss for place, step, loss in seen.losses}
    for place, step, norm in seen.gradient_norms:
        learned = any(int(known) <= int(step) and band.holds(0.0) for known, band in norms.items())
        late = int(step) > max(PROBED_STEPS)  # by then, one half of a pair that compete may have won
        if norm == 0 and norms and not late and not learned and lost.get((place, step)) != 0:
            yield Mark(kind="nothing learned", what=f"gradient norm at step {step}", value=norm)
    for each in dict.fromkeys(place for place, _, _ in seen.losses):
        own = {step: loss for place, step, loss in seen.losses if place == each}
        moves = len({losses[step].value for step in own if step in losses}) > 1
        if moves and len(set(own.values())) == 1 and (loss := own[next(iter(own))]) is not None:
            yield Mark(kind="nothing learned", what="loss at all recorded steps", value=loss)


def _described(seen: Traced) -> str:
    """Everything that a trace is tied to, except the options."""
    data = "" if seen.data is None else f", {seen.data[0]} ({kind_word(seen.data[1])}, scale {seen.data[2]:g})"
    ranks = f", {seen.ranks} ranks" if seen.ranks > 1 else ""
    return f"{seen.kind}, {seen.precision}{ranks}{data} and these options"


def load_traces(suite: str) -> Mapping[str, ReferenceTrace]:
    """The shipped traces of a suite, by label; empty if there are none."""
    path = find("baselines/traces", suite)
    return {} if path is None else decode_traces(read_content(path), str(path)).tests


def decode_traces(content: bytes, source: str) -> Traces:
    """Decode stored traces; ``source`` is the file's name. Raises InputError, with file and position, if invalid."""
    traces = convert_json(parse_json(content, source), Traces, source, "scripts/traces makes traces of a result folder")
    if traces.schema not in (2, TRACES_SCHEMA):  # 2 had no gradient norms
        refuse(source, f"schema {traces.schema}; this version of mnb reads 2 and {TRACES_SCHEMA}; make them again")
    return msgspec.structs.replace(traces, schema=TRACES_SCHEMA)


def encode_traces(traces: Traces) -> bytes:
    """Encode as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(traces), indent=1) + b"\n"

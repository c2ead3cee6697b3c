"""What a launch does for an item: whether two did the same work, and in what they differ. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeVar

import msgspec

from milabench_ng.model.bounds import Amount, Factor
from milabench_ng.model.builtin import Declared
from milabench_ng.model.catalogue import Derived, Scalar
from milabench_ng.model.profile import Scheme
from milabench_ng.records.record import Mnb, kind_word

T = TypeVar("T")
Ratio = Literal["counted", "not counted", "suppressed"]
"""What a difference does to the ratio of two rates: it counts; it is shown, but the work differs or is unknown; it is
meaningless and hidden."""
Change = Literal["work", "pace", "numbers", "length", "precision"]
"""What an option changes: what is computed for an item; only how a batch is made; the numbers that a launch begins
with; for how long it works; the arithmetic, of which what ran counts."""
_COMMON: Mapping[str, Change] = {
    "max_count": "length",
    "max_seconds": "length",
    "sample_duration": "length",
    "seed": "numbers",
    "workers": "pace",
    "precision": "precision",
}
"""The options of all workloads (`bench.options`)."""
_FED = ("cpu", "io")
"""Bounds of tests whose pace depends on their data."""
_UNKNOWN = "not recorded"
UNIT_2020 = "classic items"
"""What a rate of 2020 counts, unless stated otherwise."""
NOISE = "classic"
"""The kind of the images of 2020: decoding noise costs about 50 % more than decoding photographs."""
OTHER, AS_TODAY, KIND = "work", "as the test is today", "data kind"
Aspect = tuple[str, str, str, Ratio]
"""What is compared, its value on both sides, and what a difference does to the ratio."""


class WorkDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference."""

    what: str
    run: str
    baseline: str
    tests: tuple[str, ...] = ()
    """The rows affected; empty for the whole run."""
    ratio: Ratio = "counted"
    """What happens to the ratio of these rows."""

    @property
    def text(self) -> str:
        """The difference in one line."""
        if self.what == OTHER:
            return f"different work: {self.baseline if self.run == AS_TODAY else self.run}"
        if self.what == KIND and self.ratio == "not counted":
            return f"its dataset, which is the bottleneck, has another kind: {self.run} vs. {self.baseline}"
        return f"{self.what} {self.run} vs. {self.baseline}"


class DataRead(msgspec.Struct, frozen=True):
    """What launches read."""

    name: str
    kind: str
    scale: Amount
    cache: str
    """How the page cache held it, which is no part of the work."""


class Work(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a launch, or each launch of a row, does for an item. Two are equal if nothing differs that may count."""

    workload: str = ""
    """Empty if not recorded."""
    unit: str = UNIT_2020
    classic_factor: Factor | None = None
    """Items of 2020 per item of this unit; None if unknown."""
    derived: tuple[Derived, ...] = ()
    """The rate in other units."""
    bound: str | None = None
    """What sets the pace, as declared by the workload."""
    scheme: Scheme = Scheme.PER_GPU
    options: dict[str, Scalar | None] = {}
    """The workload's options; empty if not recorded."""
    pace_only: tuple[str, ...] = ()
    """Those of its own options that change only the pace, as declared by the workload."""
    precision: tuple[str, ...] = ()
    """What ran; empty if not recorded."""
    data: tuple[DataRead, ...] = ()

    @classmethod
    def of(cls, mnb: Mnb) -> Work:
        """The work of a launch by its record."""
        return cls(
            workload=mnb.launch.workload,
            unit=mnb.unit,
            classic_factor=mnb.classic_factor,
            derived=mnb.derived,
            bound=mnb.bound,
            scheme=mnb.launch.scheme,
            options=mnb.launch.arguments,
            pace_only=mnb.pace_only or (),
            precision=(mnb.precision.ran_before,) if mnb.precision else (),
            data=(msgspec.convert(mnb.data, DataRead, from_attributes=True),) if mnb.data else (),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Work) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        options = frozenset(self.options_that_change("work", "pace").items())
        data = frozenset((read.name, read.kind, read.scale) for read in self.data)
        return self.workload, self.unit, self.classic_factor, self.scheme, options, frozenset(self.precision), data

    def completed(self, known: Declared | None) -> Work:
        """The same, with what versions did that had no such option as the workload is ``known`` to have it now."""
        if known is None or not self.options:
            return self
        options = known.completed(self.options)
        pace_only = known.pace_only if options != self.options and not self.pace_only else self.pace_only
        return msgspec.structs.replace(self, options=options, pace_only=pace_only)

    @property
    def planned(self) -> Work:
        """What a plan says of it: the workload, how it spreads and its options."""
        return Work(workload=self.workload, scheme=self.scheme, options=self.options, pace_only=self.pace_only)

    def options_that_change(self, *what: Change) -> dict[str, Scalar | None]:
        """Those of its options that change any of ``what``."""
        return {name: value for name, value in self.options.items() if self._change(name) in what}

    def _change(self, name: str) -> Change:
        return _COMMON.get(name, "pace" if name in self.pace_only else "work")

    def comparable(self, other: Work) -> bool:
        """Whether rates of both can be compared: nothing differs that decides."""
        return all(one.ratio == "counted" for one in self.differences(other))

    def differences(self, other: Work) -> tuple[WorkDifference, ...]:
        """What differs from ``other``, the baseline.

        A value that only one of both records is a difference: whether the work was the same is unknown, and the ratio
        does not count.
        """
        return differing(self._aspects(other))

    def _aspects(self, other: Work) -> Iterator[Aspect]:
        if self.classic_factor is not None and other.classic_factor is not None:
            yield "unit", self.unit, other.unit, "suppressed"
            yield "items of 2020 per item", f"{self.classic_factor:g}", f"{other.classic_factor:g}", "suppressed"
        if bool(self.precision) != bool(other.precision):  # all our records have a precision, and none from 2020 does
            recorded = sides(self, other, lambda work: joined(work.precision) or _UNKNOWN)
            yield "precision, data and options", *recorded, "not counted"
            return
        if self.workload and other.workload:
            yield "workload", self.workload, other.workload, "suppressed"
        yield "partition scheme", self.scheme, other.scheme, "suppressed"
        yield "precision", *sides(self, other, lambda work: joined(work.precision)), "suppressed"
        fed = self.bound in _FED or other.bound in _FED
        yield from self._of_data(other, fed)
        yield from self._of_options(other, fed)

    def _of_data(self, other: Work, fed: bool) -> Iterator[Aspect]:
        names = sides(self, other, lambda work: joined(at.name.removesuffix(f"-{at.kind}") for at in work.data))
        yield "dataset", *names, "suppressed"
        yield "data scale", *sides(self, other, lambda work: joined(f"{at.scale:g}" for at in work.data)), "suppressed"
        kinds = sides(self, other, lambda work: joined(kind_word(at.kind) for at in work.data))
        yield KIND, *kinds, "not counted" if fed and NOISE in kinds else "counted"

    def _of_options(self, other: Work, fed: bool) -> Iterator[Aspect]:
        if bool(self.options) != bool(other.options):
            recorded = sides(self, other, lambda work: "recorded" if work.options else _UNKNOWN)
            yield "options", *recorded, "not counted"
            return
        for name in sorted(self.options.keys() | other.options.keys()):
            ours, theirs = (str(work.options.get(name, _UNKNOWN)) for work in (self, other))
            changes = {self._change(name), other._change(name)}
            if "work" in changes:
                yield f"option {name}", ours, theirs, "not counted" if _UNKNOWN in (ours, theirs) else "suppressed"
            elif "pace" in changes and _UNKNOWN not in (ours, theirs):
                yield f"option {name}", ours, theirs, "not counted" if fed else "counted"


def declared(said: Declared | Mnb | Work) -> dict[str, str]:
    """What a workload declares of its items, and records repeat, in words."""
    return {
        "unit": said.unit,
        "classic_factor": str(said.classic_factor),
        "bound": str(said.bound),
        "list of derived units": ", ".join(dict.fromkeys(f"{each.unit} = {each.formula}" for each in said.derived))
        or "none",
        "list of options of pace only": ", ".join(said.pace_only or ()) or "none",
    }


def differing(aspects: Iterable[Aspect], *tests: str) -> tuple[WorkDifference, ...]:
    """Those of ``aspects`` that differ, as differences of ``tests``; an empty value is shown as ``none``."""
    return tuple(
        WorkDifference(what=what, run=ours or "none", baseline=theirs or "none", tests=tests, ratio=ratio)
        for what, ours, theirs, ratio in aspects
        if ours != theirs
    )


def sides(run: T, base: T, show: Callable[[T], str]) -> tuple[str, str]:
    """Both values of an aspect."""
    return show(run), show(base)


def joined(values: Iterable[str]) -> str:
    """``"fp32, tf32"``: each once, in order."""
    return ", ".join(sorted(set(values)))

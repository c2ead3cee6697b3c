"""The ``workload`` decorator, and the workload that it declares."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from milabench_ng.bench.options import COMMON
from milabench_ng.bench.signature import Function, read_options
from milabench_ng.datasets.base import DataSet
from milabench_ng.model import catalogue
from milabench_ng.model.batch_sizes import BATCH_SIZE
from milabench_ng.model.catalogue import (
    AUTO,
    DEVICE_PEAKS,
    Bound,
    DataBy,
    Derived,
    FirstLoss,
    Legacy2020,
    Option,
    Scalar,
)
from milabench_ng.model.errors import InputError
from milabench_ng.model.formula import choices, names
from milabench_ng.model.sources import digest, reachable

if TYPE_CHECKING:
    from milabench_ng.bench.bench import Bench

_DEVICES = "devices"
"""What a workload's rule and formulas call the number of devices that a launch runs over."""
_LEARNS = "learning_rate"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Declared:
    """What a workload's function cannot say about itself."""

    unit: str
    data: type[DataSet] | DataBy | None = None
    precision: str = "fp32"
    distributed: bool | Literal["if several"] = False
    bound: Bound | None = None
    cpu_only: bool = False
    requires: tuple[str, ...] = ()
    extra: str | None = None
    ram_gib: float | None = None
    auto_batch: bool = False
    classic_factor: float = 1.0
    legacy_2020: tuple[Legacy2020, ...] = ()
    derived: tuple[Derived, ...] = ()
    notes: tuple[str, ...] = ()
    item_latencies: tuple[str, ...] = ()
    stores: bool = False
    pace_only: tuple[str, ...] = ()
    formerly: Mapping[str, Scalar] = field(default_factory=dict)
    most_items: str | None = None
    trains: bool | None = None
    own_types: bool = False
    converts: Mapping[str, str] = field(default_factory=dict)
    paced_by: str | None = None
    first_loss: FirstLoss | None = None
    fits: Function | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class workload(_Declared):  # noqa: N801  # a decorator
    """Declare a function ``(bench, *, options...)`` as a workload.

    ``unit``: what one item is. ``data``: the dataset that it reads, or which one by the value of an option.
    ``distributed``: it runs as one rank per device; ``"if several"``: over one device it runs as other workloads do,
    without a process group. ``bound``: what sets its pace. ``cpu_only``: its device is the CPU even if the tenant has a
    GPU. ``requires``: modules that it imports at run time and that may not be installed; ``extra``: the extra of its
    package that installs them. ``ram_gib``: RAM that a tenant needs, without page cache. ``auto_batch``: ``--batch-size
    auto`` may find its option ``batch_size``, with which its memory grows. ``classic_factor``: items of the 2020 tool
    per true item. ``legacy_2020``: how 2020 profiles name it. ``derived``: its rate in other units, shown beside it.
    ``notes``: names of what it notes of its steps (`Bench.notes`), for their formulas. ``item_latencies``: what of its
    items it times (`Notes.latency`), such as ``TTFT``. ``stores``: it writes files, below the data root
    (`Bench.storage`). ``pace_only``: those of its options that change only how fast batches are made, not what is
    computed for an item. ``formerly``: what versions did that had no such option, by option: their records are compared
    as if they said so. ``most_items``: the most items of a step, as a formula over its own options and ``devices``, the
    number that a launch runs over; by default its option ``batch_size``, if it has one. ``trains``: it calls
    `Bench.step` in each step; by default if it has an option ``learning_rate``. ``own_types``: its model has types that
    its precision mode does not make, or neither a linear nor a convolution layer. ``converts``: how the names of types
    begin that it converts weights to, each with a formula over its own options, which is 0 with those that do not.
    ``paced_by``: the option that sets its pace, unless it is 0, instead of what ``bound`` says. ``first_loss``: the
    loss of step 1, where theory says it. ``fits``: a function of some of the options, by name, and of ``devices``, that
    raises InputError where they do not go together; it is asked before a run begins.

    Raises InputError for formulas over what is no option, and if ``fits`` or ``pace_only`` name what is none.
    """

    def __call__(self, function: Function) -> Definition:
        """Declare ``function``."""
        copied = {"formerly": dict(self.formerly), "converts": dict(self.converts)}
        return Definition(function=function, **vars(self) | copied)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Definition(_Declared):
    """A declared workload: its function and what the function cannot say about itself."""

    function: Function

    def __post_init__(self) -> None:
        _check_derived(self)
        own = read_options(self.function)
        if self.first_loss is not None:
            _check_formula(self, "the loss of the first step", self.first_loss.formula, own)
            _check_formula(self, "the variance of the first loss", self.first_loss.variance, own)
        if self.most_items is not None:
            _check_formula(self, "most_items", self.most_items, own, _DEVICES)
        for name, formula in self.converts.items():
            _check_formula(self, f"what converts weights to {name!r}", formula, own)
        options = {option.name for option in own}
        for what, named in (
            ("fits takes", self._judged() - {_DEVICES}),
            ("pace_only names", {*self.pace_only}),
            ("paced_by names", {self.paced_by} if self.paced_by else set()),
            ("formerly names", {*self.formerly}),
        ):
            if unknown := named - options:
                raise InputError(
                    f"workload {self.name}: {what} {', '.join(sorted(unknown))}, which is no option. Correct the name"
                )

    def __call__(self, bench: Bench, **options: Any) -> None:
        """Run the workload on ``bench``."""
        self.check(options, bench.ranks)
        self.function(bench, **options)

    def check(self, options: Mapping[str, Any], devices: int = 1) -> None:
        """Raise InputError for options that do not go together; a number yet to be found goes with all.

        ``devices``: over how many a launch runs.
        """
        own = {option.name: option.default for option in read_options(self.function)}
        given = {_DEVICES: devices} | own | {**options}
        judged = {name: given[name] for name in self._judged()}
        if self.fits is not None and AUTO not in judged.values():
            self.fits(**judged)

    def _judged(self) -> set[str]:
        return set() if self.fits is None else {*inspect.signature(self.fits).parameters}

    def in_ranks(self, devices: int) -> bool:
        """Whether a launch over so many devices has a process group."""
        return devices > 1 if self.distributed == "if several" else self.distributed

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def own_options(self) -> tuple[Option, ...]:
        """The options of the function's keyword-only parameters, without the common ones."""
        options = read_options(self.function)
        if not self.auto_batch:
            return options
        if not any((option.name, option.type) == (BATCH_SIZE, "int") for option in options):
            raise InputError(
                f"workload {self.function.__module__}:{self.name}: auto_batch needs an option 'batch_size' of type int"
            )
        return tuple(replace(option, auto=option.name == BATCH_SIZE) for option in options)

    def describe(self, name: str, package: str) -> catalogue.Workload:
        """This workload as a value of the catalogue, under ``name``, from the distribution ``package``."""
        modules = source_modules(self.function)
        own = {option.name for option in self.own_options}
        if isinstance(self.data, DataBy):
            check_choice(self.data, self.own_options, self.name)
        same = {name: value for name, value in vars(self).items() if name in catalogue.Workload.__struct_fields__}
        read = {
            "name": name,
            "distributed": bool(self.distributed),
            "data": self.data.name if isinstance(self.data, type) else self.data,
            "options": (*self.own_options, *COMMON(self.precision)),
            "missing": tuple(name for name in self.requires if importlib.util.find_spec(name) is None),
            "most_items": BATCH_SIZE if self.most_items is None and BATCH_SIZE in own else self.most_items,
            "trains": _LEARNS in own if self.trains is None else self.trains,
            "description": inspect.getdoc(self.function) or "",
            "origin": f"{self.function.__module__}:{self.function.__qualname__}",
            "package": package,
            "source_modules": tuple(modules),
            "source_sha256": digest(modules),
        }
        return catalogue.Workload(**same | read)


def check_choice(data: DataBy, options: Sequence[Option], name: str) -> None:
    """Raise InputError unless one of ``options`` chooses the dataset, and takes the values that it does so by."""
    chooser = next((option for option in options if option.name == data.option), None)
    if chooser is None or not set(data.sets) <= set(chooser.choices):
        raise InputError(
            f"workload {name}: data=DataBy({data.option!r}, {data.sets!r}) needs an option {data.option!r} annotated "
            f"with a Literal that has {', '.join(map(repr, data.sets))}"
        )


def _check_derived(definition: Definition) -> None:
    """Raise InputError for formulas over anything but what `Derived.formula` lists."""
    if not definition.derived:
        return
    where = _where(definition)
    options = (*definition.own_options, *COMMON(definition.precision))
    numeric = _numeric(options)
    known = ("rate", "devices", *DEVICE_PEAKS, *definition.notes)
    hidden = next((name for name in known if name in numeric), None)
    if hidden is not None:
        raise InputError(
            f"{where}: option {hidden!r} would hide the {hidden} in the formulas of its derived units. Rename the "
            "option"
        )
    units = [(each.unit, repr(each.only), each.curve_at) for each in definition.derived]
    if len({*units}) < len(units):
        told = ", ".join(unit for unit, _, _ in units)
        raise InputError(f"{where}: a derived unit is declared twice for the same options: {told}. Leave one out")
    for each in definition.derived:
        _check_formula(definition, f"derived unit {each.unit!r}", each.formula, options, *known)
        absent = sorted({*(() if each.only is UNSET else each.only)} - {one.name for one in options})
        if absent:
            raise InputError(
                f"{where}: derived unit {each.unit!r} is for {absent[0]!r}, which is no option. Correct its name"
            )
        if each.curve_at is not UNSET and each.curve_over is UNSET:
            raise InputError(
                f"{where}: derived unit {each.unit!r} has curve_at, but no curve_over. Say what it is over"
            )
        if each.curve_at is UNSET and each.curve_over is not UNSET and each.curve_over not in numeric:
            raise InputError(
                f"{where}: derived unit {each.unit!r} is a curve over {each.curve_over!r}, which is no numeric option. "
                "Correct its name"
            )


def _check_formula(definition: Definition, what: str, formula: str, options: Sequence[Option], *others: str) -> None:
    """Raise InputError for a formula over anything but ``options`` and ``others``, and for texts that no option has."""
    known, compared = [*others, *_numeric(options)], choices(formula)
    unknown = sorted(names(formula) - {*known} - {name for name, _ in compared})
    if unknown:
        known_names = ", ".join(known)
        raise InputError(
            f"{_where(definition)}: {what} = {formula!r} has no value for {', '.join(unknown)}. Known: {known_names}"
        )
    for name, text in sorted(compared - {(option.name, each) for option in options for each in option.choices}):
        raise InputError(f"{_where(definition)}: {what} = {formula!r}: no option {name!r} has the choice {text!r}")


def _where(definition: Definition) -> str:
    return f"workload {definition.function.__module__}:{definition.function.__qualname__}"


def _numeric(options: Sequence[Option]) -> list[str]:
    return [option.name for option in options if option.type in ("int", "float", "bool")]


def source_modules(function: Callable[..., object]) -> dict[str, bytes]:
    """Name and content of each module that belongs to ``function``: its own first, then by name."""
    return reachable(function.__module__, Path(inspect.getfile(function)).read_bytes(), _content)


def _content(name: str) -> bytes | None:
    """The file of a module; None if there is no such module (the name is a function's, for example)."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # its parent is a module, not a package
        return None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return None
    return Path(found.origin).read_bytes()

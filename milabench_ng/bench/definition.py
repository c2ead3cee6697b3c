"""The ``workload`` decorator, and what it reads from a function's signature."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta
from msgspec.structs import replace

from milabench_ng import catalogue
from milabench_ng.batch_sizes import BATCH_SIZE
from milabench_ng.bench.options import COMMON
from milabench_ng.bench.source import source_modules
from milabench_ng.catalogue import AUTO, DEVICE_PEAKS, Bound, Classic, DataBy, Derived, Option, Range
from milabench_ng.datasets.base import DataSet
from milabench_ng.errors import InputError
from milabench_ng.formula import names
from milabench_ng.sources import digest

if TYPE_CHECKING:
    from milabench_ng.bench.bench import Bench

Function = Callable[..., None]
_NAMES = {kind: name for name, kind in catalogue.type_names.items()}


@dataclasses.dataclass(frozen=True)
class Definition:
    """A declared workload: its function and what the function cannot say about itself."""

    function: Function
    unit: str
    data: type[DataSet] | DataBy | None
    precision: str
    distributed: bool
    bound: Bound | None
    cpu_only: bool
    requires: tuple[str, ...]
    extra: str | None
    ram_gib: float | None
    auto_batch: bool
    classic_factor: float
    classic: tuple[Classic, ...]
    derived: tuple[Derived, ...]
    notes: tuple[str, ...]
    stores: bool
    fits: Function | None = None

    def __post_init__(self) -> None:
        _check_derived(self)
        unknown = self._judged() - {option.name for option in read_options(self.function)}
        if unknown:
            raise InputError(f"workload {self.name}: fits takes {', '.join(sorted(unknown))}, which is no option")

    def __call__(self, bench: Bench, **options: Any) -> None:
        """Run the workload on ``bench``."""
        self.check(options)
        self.function(bench, **options)

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise InputError for options that do not go together; a number yet to be found goes with all."""
        given = {option.name: option.default for option in read_options(self.function)} | {**options}
        judged = {name: given[name] for name in self._judged()}
        if self.fits is not None and AUTO not in judged.values():
            self.fits(**judged)

    def _judged(self) -> set[str]:
        return set() if self.fits is None else {*inspect.signature(self.fits).parameters}

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
        if isinstance(self.data, DataBy):
            check_choice(self.data, self.own_options, self.name)
        return catalogue.Workload(
            name=name,
            unit=self.unit,
            data=self.data.name if isinstance(self.data, type) else self.data,
            options=(*self.own_options, *COMMON(self.precision)),
            precision=self.precision,
            distributed=self.distributed,
            bound=self.bound,
            cpu_only=self.cpu_only,
            requires=self.requires,
            missing=tuple(name for name in self.requires if importlib.util.find_spec(name) is None),
            extra=self.extra,
            ram_gib=self.ram_gib,
            classic_factor=self.classic_factor,
            classic=self.classic,
            derived=self.derived,
            notes=self.notes,
            stores=self.stores,
            description=inspect.getdoc(self.function) or "",
            origin=f"{self.function.__module__}:{self.function.__qualname__}",
            package=package,
            source_modules=tuple(modules),
            source_sha256=digest(modules),
        )


def workload(
    *,
    unit: str,
    data: type[DataSet] | DataBy | None = None,
    precision: str = "fp32",
    distributed: bool = False,
    bound: Bound | None = None,
    cpu_only: bool = False,
    requires: tuple[str, ...] = (),
    extra: str | None = None,
    ram_gib: float | None = None,
    auto_batch: bool = False,
    classic_factor: float = 1.0,
    classic: tuple[Classic, ...] = (),
    derived: tuple[Derived, ...] = (),
    notes: tuple[str, ...] = (),
    stores: bool = False,
    fits: Function | None = None,
) -> Callable[[Function], Definition]:
    """Declare a function ``(bench, *, options...)`` as a workload.

    ``unit``: what one item is. ``data``: the data set that it reads, or which one by the value of an option.
    ``distributed``: it runs as one rank per device. ``bound``: what sets its pace. ``cpu_only``: its device is the CPU
    even if the tenant has a GPU. ``requires``: modules that it imports at run time and that may not be installed;
    ``extra``: the extra of its package that installs them. ``ram_gib``: RAM that a tenant needs, without page cache.
    ``auto_batch``: ``--batch-size auto`` may find its option ``batch_size``, with which its memory grows.
    ``classic_factor``: items of the 2020 tool per true item. ``classic``: how 2020 profiles name it. ``derived``: its
    rate in other units, shown beside it. ``notes``: names of what it notes of its steps (`Bench.notes`), for their
    formulas. ``stores``: it writes files, below the data root (`Bench.storage`). ``fits``: a function of some of the
    options, by name, that raises InputError where they do not go together; it is asked before a run begins.

    Raises InputError for a derived unit whose formula cannot be evaluated, and if ``fits`` takes what is no option.
    """

    def declare(function: Function) -> Definition:
        return Definition(
            function=function,
            unit=unit,
            data=data,
            precision=precision,
            distributed=distributed,
            bound=bound,
            cpu_only=cpu_only,
            requires=requires,
            extra=extra,
            ram_gib=ram_gib,
            auto_batch=auto_batch,
            classic_factor=classic_factor,
            classic=classic,
            derived=derived,
            notes=notes,
            stores=stores,
            fits=fits,
        )

    return declare


def check_choice(data: DataBy, options: Sequence[Option], name: str) -> None:
    """Raise InputError unless one of ``options`` chooses the data set, and takes the values that it does so by."""
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
    where = f"workload {definition.function.__module__}:{definition.function.__qualname__}"
    options = (*definition.own_options, *COMMON(definition.precision))
    numeric = [option.name for option in options if option.type in ("int", "float")]
    known = ("rate", "devices", *DEVICE_PEAKS, *definition.notes)
    hidden = next((name for name in known if name in numeric), None)
    if hidden is not None:
        raise InputError(
            f"{where}: option {hidden!r} would hide the {hidden} in the formulas of its derived units; rename it"
        )
    units = [each.unit for each in definition.derived]
    if len({*units}) < len(units):
        raise InputError(f"{where}: a derived unit is declared twice: {', '.join(units)}")
    for each in definition.derived:
        unknown = sorted(names(each.formula) - {*known, *numeric})
        if unknown:
            raise InputError(
                f"{where}: derived unit {each.unit!r} = {each.formula!r} has no value for {', '.join(unknown)}; "
                f"there are {', '.join((*known, *numeric))}"
            )
        absent = sorted({*(() if each.only is UNSET else each.only)} - {one.name for one in options})
        if absent:
            raise InputError(f"{where}: derived unit {each.unit!r} is for an option that is not there: {absent[0]}")


def read_options(function: Function) -> tuple[Option, ...]:
    """The options of a workload: its keyword-only parameters, explained in the docstring's ``Options:`` section."""
    hints = get_type_hints(function, include_extras=True)
    meanings = _meanings(inspect.getdoc(function) or "")
    options = []
    where = f"workload {function.__module__}:{function.__qualname__}"
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise InputError(f"{where}: {parameter.name!r} is not keyword-only; put '*' after the first parameter")
        hint, allowed = _range(hints.get(parameter.name), where, parameter)
        kind, choices = _kind(hint, where, parameter)
        if parameter.name in {option.name for option in COMMON("fp32")}:
            raise InputError(f"{where}: option {parameter.name!r} is common to all workloads; rename yours")
        option = Option(
            name=parameter.name,
            type=kind,
            default=parameter.default,
            choices=choices,
            range=allowed,
            meaning=meanings.get(parameter.name, ""),
        )
        options.append(replace(option, default=option.check(parameter.default, f"{where}: default")))
    return tuple(options)


def _range(hint: object, where: str, parameter: inspect.Parameter) -> tuple[object, Range]:
    """The type in ``Annotated[int, Meta(ge=1)]``, and its range; any other annotation is a type without a range."""
    if get_origin(hint) is not Annotated:
        return hint, Range()
    kind, *notes = get_args(hint)
    bounds = {name: getattr(note, name, None) for note in notes for name in Range.__struct_fields__}
    if len(notes) != 1 or notes[0] != Meta(**bounds) or kind not in (int, float):
        raise InputError(
            f"{where}: option {parameter.name!r} is annotated {hint!r}; a range is one Meta with ge, gt, le and lt "
            "of an int or a float"
        )
    return kind, Range(**bounds)


def _kind(
    hint: object, where: str, parameter: inspect.Parameter
) -> tuple[Literal["int", "float", "bool", "str"], tuple[str, ...]]:
    if parameter.default is inspect.Parameter.empty:
        raise InputError(f"{where}: option {parameter.name!r} has no default; give it one")
    if get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint)):
        return "str", tuple(get_args(hint))
    if hint not in _NAMES:
        raise InputError(
            f"{where}: option {parameter.name!r} is annotated {hint!r}; use int, float, bool, str or a "
            "Literal of strings"
        )
    return _NAMES[hint], ()  # type: ignore[return-value]


def _meanings(docstring: str) -> dict[str, str]:
    """``{"batch_size": "images per step"}`` from the indented ``name: meaning`` lines below ``Options:``."""
    _, found, rest = docstring.partition("\nOptions:\n")
    meanings: dict[str, str] = {}
    name = ""
    for line in rest.splitlines() if found else ():
        if not line.startswith(" "):
            break
        entry = re.fullmatch(r" {4}(\w+): (.*)", line)
        if entry:
            name = entry[1]
            meanings[name] = entry[2]
        elif name:
            meanings[name] += " " + line.strip()
    return meanings

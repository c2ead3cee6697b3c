"""The catalogue: which workloads and datasets exist and which options they take, as plain values.

Only the worker server imports workloads (and torch); all others ask it for the catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.formula import evaluate
from milabench_ng.model.plain import short
from milabench_ng.model.similar import did_you_mean, meant_or_all

type_names = {"int": int, "float": float, "bool": bool, "str": str}
Scalar = bool | int | float | str
AUTO = "auto"
"""In place of a number: the orchestrator finds it before the first batch of the test (`batch_sizes`)."""
Bound = Literal["cpu", "io", "launch", "links", "gpu-compute", "gpu-memory"]
"""What sets a workload's pace on the GPUs of its time.

In this order: the tenant's CPUs, its storage, kernel launches, the links of the devices to each
other and to the host, the device's arithmetic or its memory bandwidth.
"""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Which numbers an option takes: at least ``ge``, more than ``gt``, at most ``le``, less than ``lt``."""

    ge: int | float | None = None
    gt: int | float | None = None
    le: int | float | None = None
    lt: int | float | None = None

    def holds(self, value: int | float) -> bool:
        """Whether ``value`` is inside."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __str__(self) -> str:
        """``">= 1"`` or ``">= 0 and <= 1"``; empty for all numbers."""
        bounds = ((">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt))
        return " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)

    def told(self) -> str:
        """``"at least 1"`` or ``"at least 0 and at most 1"``; empty for all numbers."""
        bounds = (("at least", self.ge), ("above", self.gt), ("at most", self.le), ("below", self.lt))
        return " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a workload: a keyword-only parameter of its function."""

    name: str
    type: Literal["int", "float", "bool", "str"]
    default: Scalar | None
    choices: tuple[str, ...] = ()
    range: Range = Range()
    """The range of an int or a float."""
    meaning: str = ""
    auto: bool = False
    """Whether it also takes `AUTO`."""

    def check(self, value: object, where: str) -> Scalar:
        """``value`` in this option's type; an int is accepted for a float, nothing else is converted."""
        if self.auto and value == AUTO:
            return AUTO
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise InputError(f"{where}: {self.name} is an integer of more than 64 bits (default {self.default!r})")
        if self.type == "float" and type(value) is int:
            value = float(value)
        if type(value) is float and not math.isfinite(value):
            raise InputError(
                f"{where}: {self.name}: expected a finite number, got {value!r} (default {self.default!r})"
            )
        if type(value) is not type_names[self.type] or (self.choices and value not in self.choices):
            shown = short(repr(value))
            raise InputError(f"{where}: {self.name} is {shown}; it takes {self.wanted()} (default {self.default!r})")
        if isinstance(value, int | float) and not self.range.holds(value):
            raise InputError(f"{where}: {self.name} is {value!r}; it takes {self.wanted()} (default {self.default!r})")
        return value  # type: ignore[return-value]  # type() above is the check

    def parse(self, text: str, where: str) -> Scalar:
        """The value of ``text`` from a command line."""
        if self.auto and text == AUTO:
            return AUTO
        words: dict[str, Scalar] = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
        try:
            value = words[text.lower()] if self.type == "bool" else type_names[self.type](text)
        except (KeyError, ValueError):
            flag = f"--{self.name.replace('_', '-')} {short(repr(text))}"
            raise InputError(f"{where}: {flag}; it takes {self.wanted()} (default {self.default!r})") from None
        return self.check(value, where)

    def kind(self) -> str:
        """``"int"``, ``"int >= 1"``, ``"int >= 1 or auto"`` or ``"one of fp32, amp"``."""
        found = f"one of {', '.join(self.choices)}" if self.choices else f"{self.type} {self.range}".rstrip()
        return f"{found} or {AUTO}" if self.auto else found

    def wanted(self) -> str:
        """The same in a sentence: ``"a whole number, at least 1"``."""
        words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
        known = f"one of {', '.join(self.choices)}" if self.choices else words[self.type]
        found = ", ".join(filter(None, (known, self.range.told())))
        return f"{found}, or {AUTO}" if self.auto else found


class Legacy2020(msgspec.Struct, frozen=True, kw_only=True):
    """How a 2020 profile names this workload: read once, when such a profile is converted."""

    experiment: str
    """The 2020 ``experiment``, such as ``"milarun.models.vae:main"``."""
    options: dict[str, str] = {}
    """2020 option -> our option, if the name differs."""
    implied: dict[str, dict[str, Scalar]] = {}
    """2020 flag -> our arguments, for flags that set something else (``half`` -> precision).

    Also for single values of an option (``dtype=float16``); under ``""`` the defaults of 2020 that differ from ours.
    """
    ignored: tuple[str, ...] = ()
    """2020 options without effect on what is measured here."""


class DataBy(msgspec.Struct, frozen=True, kw_only=True):
    """Which dataset a workload reads, by the value of one of its options."""

    option: str
    sets: dict[str, str]
    """Value of the option -> name of the dataset; with other values it reads none."""


def data_set_of(data: str | DataBy | None, arguments: Mapping[str, Scalar | None]) -> str | None:
    """The name of the dataset that a workload with this ``data`` reads with these arguments."""
    return data.sets.get(str(arguments.get(data.option))) if isinstance(data, DataBy) else data


DEVICE_PEAKS = ("peak_tflops", "peak_gb_per_s", "peak_fp8_tflops", "peak_fp4_tflops")
"""What formulas may say of the device, by its data sheet: its dense fp16 and bf16 peak in 1e12 operations per second,
that of its memory in 1e9 bytes per second, and its dense fp8 and fp4 peaks, if it has them."""


class Derived(msgspec.Struct, frozen=True):
    """The rate in another unit, such as one that users of a suite know."""

    unit: str
    formula: str
    """With ``+ - * /``, ``log()``, ``(option == 'text')`` and parentheses.

    Over ``rate`` (items per second), ``devices`` (of the launch), the options, `DEVICE_PEAKS`, and what the workload
    notes of its steps.
    """
    only: dict[str, Scalar] | msgspec.UnsetType = msgspec.UNSET
    """The options' values with which it is a unit of the test; omitted if it always is."""
    curve_over: str | msgspec.UnsetType = msgspec.UNSET
    """The option whose values make a curve of tests that differ in nothing else: the rate against this unit."""
    curve_at: float | msgspec.UnsetType = msgspec.UNSET
    """Where on a curve this is, if each step of one test goes through all of it: ``curve_over`` names what then."""

    def fits(self, options: Mapping[str, Scalar | None]) -> bool:
        """Whether it is a unit of a test with ``options``."""
        return self.only is msgspec.UNSET or all(options.get(name) == value for name, value in self.only.items())

    def of(
        self, rate: float, options: Mapping[str, Scalar | None], measured: Mapping[str, float] | None = None
    ) -> float:
        """The value of a launch with ``options``.

        ``measured``: ``devices``, the peaks of one, and the mean of each note per step.

        Raises InputError if there is none, as `formula.evaluate` does.
        """
        return evaluate(self.formula, {**options, **(measured or {}), "rate": rate})


CHANCE = 5.0
"""Standard deviations that a launch may be from its expectation: one honest launch in 1.7 million is not."""


class FirstLoss(msgspec.Struct, frozen=True):
    """The loss of the first step by theory, which follows from how the weights are made."""

    formula: str
    """Over the workload's own options."""
    within: float = 0.01
    """As a share of it: how far a launch may be from it, by chance and rounding."""
    variance: str = "0"
    """Of the loss, over the workload's own options: a launch may be `CHANCE` standard deviations away in any case."""

    def of(self, options: Mapping[str, Scalar | None]) -> float:
        """The loss of a launch with ``options``. Raises InputError if there is none, as `formula.evaluate` does."""
        return evaluate(self.formula, options)

    def margin(self, options: Mapping[str, Scalar | None]) -> float:
        """How far the loss of a launch with ``options`` may be from it. Raises InputError as `of` does."""
        variance = max(0.0, evaluate(self.variance, options))
        return max(self.within * abs(self.of(options)), CHANCE * math.sqrt(variance))


class Declarations(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload says of itself that readers of its records compare with."""

    unit: str
    """What one item is: ``"images"``, ``"tokens"``..."""
    classic_factor: float
    """Items of 2020 per true item."""
    bound: Bound | None
    """Declared, not measured; None if its author does not say."""
    data: str | DataBy | None
    """The name of the dataset that it reads, or how its options choose one."""
    derived: tuple[Derived, ...] = ()
    """Its rate in other units."""
    notes: tuple[str, ...] = ()
    """What it notes of its steps, by name: seconds (``..._s``), shares from 0 to 1, or amounts."""
    item_latencies: tuple[str, ...] = ()
    """What of its items it times, by name, such as ``TTFT``: each item has at most one latency of a name."""
    stores: bool = False
    """Writes files below the data root."""
    pace_only: tuple[str, ...] = ()
    """Its own options that change only how a batch is made, not what is computed for an item."""
    formerly: dict[str, Scalar] = {}
    """What versions did that had no such option, by option."""
    most_items: str | None = None
    """The most items of a step: a formula over its options and ``devices``; None if its author does not say."""
    trains: bool = False
    """Each step is a step of training, whose loss and gradient norm are noted."""
    own_types: bool = False
    """Its model has types that its precision mode does not make, or no layer that shows its type."""
    converts: dict[str, str] = {}
    """How the names of types begin that it converts weights to, with a formula over its options: 0 if it does not."""
    paced_by: str | None = None
    """The option that sets its pace unless it is 0: then nothing bounds it."""
    first_loss: FirstLoss | None = None
    """None where theory does not say it."""

    def completed(self, options: Mapping[str, Scalar | None]) -> dict[str, Scalar | None]:
        """``options`` of a launch, with what versions did that had no such option."""
        return {**self.formerly, **options}

    def paced(self, options: Mapping[str, Scalar | None]) -> str | None:
        """The option that sets its pace with ``options``; None if none does."""
        return self.paced_by if self.paced_by and options.get(self.paced_by) else None

    def most_of_a_step(self, options: Mapping[str, Scalar | None], devices: int) -> float | None:
        """The most items of a step with ``options``; None if its author does not say.

        Raises InputError if there is none, as `formula.evaluate` does.
        """
        known = self.completed(options) | {"devices": devices}
        return None if self.most_items is None else evaluate(self.most_items, known)

    def converted(self, options: Mapping[str, Scalar | None]) -> tuple[str, ...]:
        """How the names of types begin that it converts weights to with ``options``.

        Raises InputError if that cannot be said, as `formula.evaluate` does.
        """
        known = self.completed(options)
        return tuple(name for name, formula in self.converts.items() if evaluate(formula, known))


class Workload(Declarations, frozen=True, kw_only=True):
    """What is known of a workload without importing it."""

    name: str
    options: tuple[Option, ...]
    precision: str
    """The mode it runs in by default."""
    distributed: bool
    """Can run as one rank per device; others run in one process."""
    cpu_only: bool
    """Its device is the CPU, even if the tenant has a GPU."""
    requires: tuple[str, ...]
    """Modules that it imports at run time, besides those that this package always needs."""
    missing: tuple[str, ...]
    """Those of ``requires`` that are not installed."""
    extra: str | None
    """The extra of its package that installs them."""
    ram_gib: float | None
    """RAM in GiB that a tenant needs with the options of the standard profile; None if it was not measured.

    Anonymous and shared memory, without page cache.
    """
    legacy_2020: tuple[Legacy2020, ...]
    description: str
    origin: str
    """``package.module:function``."""
    package: str
    """The distribution and version that it comes from."""
    source_modules: tuple[str, ...]
    """Its module and those of the same package that it imports."""
    source_sha256: str
    """Hash of their concatenated files."""

    def data_set(self, arguments: Mapping[str, Scalar | None]) -> str | None:
        """The name of the dataset that it reads with these arguments."""
        return data_set_of(self.data, arguments)

    @property
    def data_sets(self) -> dict[str, str]:
        """The datasets that it may read, by name, and with which option; ``""`` if it always does."""
        if isinstance(self.data, DataBy):
            flag = self.data.option.replace("_", "-")
            return {name: f"--{flag} {value}" for value, name in self.data.sets.items()}
        return {self.data: ""} if self.data else {}

    @property
    def remedy(self) -> str:
        """The command that installs what is missing."""
        distribution = self.package.partition(" ")[0]
        return f'pip install "{distribution}[{self.extra}]"' if self.extra else f"pip install {' '.join(self.missing)}"

    @property
    def summary(self) -> str:
        """First line of the description."""
        return self.description.strip().partition("\n")[0]


class DataSetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a dataset without importing it."""

    name: str
    folder: str
    scalable: bool
    classic: str | None = None
    """The dataset that is read instead with ``--classic-data``."""
    files: int
    bytes: int
    """Estimated bytes at full size."""
    description: str
    origin: str


def unknown_workload(name: str, known: Collection[str], where: str = "") -> InputError:
    """The error that ``known`` are all workloads, and ``name`` is none."""
    meant = meant_or_all(name, sorted(known))
    told = f"unknown workload {short(repr(name))}{meant}. For your own, use package.module:function"
    return InputError(f"{where}: {told}" if where else told)


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """All workloads and datasets of this installation."""

    workloads: dict[str, Workload]
    """Of other packages, those that were asked for and are sound."""
    data_sets: dict[str, DataSetInfo]
    broken: dict[str, str] = {}
    """The workloads that cannot be used, with the reason, which names the package."""
    broken_sets: dict[str, str] = {}
    """The same of datasets."""
    installed: tuple[str, ...] = ()
    """The names of all workloads that other packages offer."""

    def workload(self, name: str, where: str) -> Workload:
        """The workload called ``name``; otherwise an error that says what is wrong, or lists the valid names."""
        if name in self.broken:
            raise InputError(f"{where}: {self.broken[name]}")
        found = self.workloads.get(name)
        if found is None:
            raise unknown_workload(name, {*self.workloads, *self.installed}, where)
        return found

    def classic(self) -> Catalogue:
        """The same, but workloads read the classic form of their dataset if there is one."""
        changed = {
            name: msgspec.structs.replace(workload, data=self._classic(workload.data))
            for name, workload in self.workloads.items()
        }
        return msgspec.structs.replace(self, workloads=changed)

    def _classic(self, data: str | DataBy | None) -> str | DataBy | None:
        if isinstance(data, DataBy):
            return DataBy(option=data.option, sets={each: self._classic_set(name) for each, name in data.sets.items()})
        return data and self._classic_set(data)

    def _classic_set(self, name: str) -> str:
        found = self.data_sets.get(name)
        return (found and found.classic) or name


def normal_name(option: str) -> str:
    """``"--batch-size"`` and ``"batch-size"`` are ``"batch_size"``."""
    return option.removeprefix("--").replace("-", "_")


def resolve(options: Sequence[Option], arguments: Mapping[str, object], where: str) -> dict[str, Scalar | None]:
    """Every option with its value, from ``arguments`` or by default. Unknown or ill-typed ones are an error."""
    known = {option.name: option for option in options}
    resolved: dict[str, Scalar | None] = {option.name: option.default for option in options}
    given: set[str] = set()
    for key, value in arguments.items():
        name = normal_name(key)
        if name not in known:
            raise InputError(_unknown(where, key, options))
        if name in given:
            raise InputError(f"{where}: option {name!r} is given twice")
        given.add(name)
        resolved[name] = known[name].check(value, where)
    return resolved


def _unknown(where: str, word: str, options: Sequence[Option], dashes: str = "") -> str:
    """``dashes``: how options begin there; with them, their words are joined by dashes, as on the command line."""
    joint = "-" if dashes else "_"
    known = [f"{dashes}{option.name.replace('_', joint)}" for option in options]
    asked = word.partition("=")[0].lstrip("-")
    meant = did_you_mean(dashes + asked.replace("_", joint).replace("-", joint), known)
    listed = "" if meant else f". The options are:\n{describe(options)}"
    return f"{where}: unknown option {short(repr(word))}{meant}{listed}"


def parse_flags(options: Sequence[Option], tokens: Sequence[str], where: str) -> dict[str, Scalar]:
    """The arguments in ``--batch-size 64 --precision=amp --shuffle`` (what follows ``--`` on the command line)."""
    known = {option.name: option for option in options}
    arguments: dict[str, Scalar] = {}
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        flag, equals, text = token.partition("=")
        name = normal_name(flag)
        negated = name not in known and name.startswith("no_") and not equals
        option = known.get(name.removeprefix("no_") if negated else name)
        if not flag.startswith("--") or option is None or (negated and option.type != "bool"):
            raise InputError(_unknown(where, token, options, "--"))
        if option.name in arguments:
            raise InputError(f"{where}: option {option.name!r} is given twice")
        if option.type == "bool" and not equals:
            arguments[option.name] = not negated
            continue
        if not equals:
            if not rest:
                raise InputError(f"{where}: {flag} needs a value: {option.wanted()} (default {option.default!r})")
            text = rest.pop(0)
        arguments[option.name] = option.parse(text, where)
    return arguments


def describe(options: Sequence[Option]) -> str:
    """One line per option: name, type, default, meaning."""
    return "\n".join(
        f"  --{option.name.replace('_', '-')} {option.kind()} (default {option.default!r})  {option.meaning}".rstrip()
        for option in options
    )
